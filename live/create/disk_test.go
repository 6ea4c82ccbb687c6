// SPDX-License-Identifier: Apache-2.0

//go:build live

package create

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// capacity of an instance's disk in bytes.
func (m *maker) capacity(uid string) int64 {
	m.t.Helper()
	info, err := m.hand.Volume(m.t.Context(), m.names.Overlay(uid))
	if err != nil {
		m.t.Fatal(err)
	}
	return info.Capacity
}

func TestOverlayLeftOver(t *testing.T) {
	wide := wideImage(t, 3)
	m := newMaker(t, theHost(t), func(o *libvirt.Options) {
		i := o.Entry.Images[imageKey]
		i.URL = "file://" + wide
		o.Entry.Images = map[string]config.Image{imageKey: i}
	})
	uid := newUID()
	m.mustCreate(spec(uid, 3))
	for name, left := range map[string]int64{"as large as the image": 3 << 30, "too small for it": 1 << 30} {
		t.Run("M5: a disk that is left over, "+name, func(t *testing.T) {
			m := m.in(t)
			m.withoutDomain(uid)
			m.resize(uid, left)
			_, err := m.create(spec(uid, 1))
			wantError(t, err, provider.Permanent, "diskSizeGb is 1 (1073741824 bytes)", "3221225472 bytes", "set diskSizeGb to 3 or more")
			if now := m.capacity(uid); now != left {
				t.Errorf("what was left over has %d bytes now", now)
			}
			m.mustCreate(spec(uid, 3))
			if now := m.capacity(uid); now != 3<<30 {
				t.Errorf("its disk has %d bytes", now)
			}
		})
	}
	m.delete(uid)
}

// withoutDomain removes an instance's domain, and leaves its volumes.
func (m *maker) withoutDomain(uid string) {
	m.t.Helper()
	m.off(uid)
	if err := m.hand.Undefine(m.t.Context(), m.names.Domain(uid)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) off(uid string) {
	m.t.Helper()
	if err := m.hand.Destroy(m.t.Context(), m.names.Domain(uid)); err != nil {
		m.t.Fatal(err)
	}
}

// resize makes an instance's disk anew in another size, on the same base.
func (m *maker) resize(uid string, bytes int64) {
	m.t.Helper()
	info, err := m.hand.Volume(m.t.Context(), m.names.Overlay(uid))
	if err != nil {
		m.t.Fatal(err)
	}
	if info.Capacity == bytes {
		return
	}
	if err := m.hand.DeleteVolume(m.t.Context(), info.Name); err != nil {
		m.t.Fatal(err)
	}
	if out, err := m.host.Exec(m.t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", info.BackingPath, "-F", "qcow2", info.Path, "1G"); err != nil {
		m.t.Fatal(err, out)
	}
	if _, err := m.hand.Pool(m.t.Context(), true); err != nil {
		m.t.Fatal(err)
	}
}

func TestADiskIsGone(t *testing.T) {
	m := newMaker(t, theHost(t), nil)
	uid := newUID()
	m.mustCreate(spec(uid, 1))
	base := func(m *maker) string {
		m.t.Helper()
		info, err := m.hand.Volume(m.t.Context(), m.names.Overlay(uid))
		if err != nil {
			m.t.Fatal(err)
		}
		return filepath.Base(info.BackingPath)
	}
	deleted := func(volume func(*maker) string) func(*maker) {
		return func(m *maker) {
			if err := m.hand.DeleteVolume(m.t.Context(), volume(m)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	unlinked := func(volume func(*maker) string) func(*maker) {
		return func(m *maker) {
			if _, err := m.host.Exec(m.t.Context(), "rm", filepath.Join(m.dir, volume(m))); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	overlay := func(m *maker) string { return m.names.Overlay(uid) }
	seed := func(m *maker) string { return m.names.Seed(uid) }
	for name, lose := range map[string]func(*maker){
		"its disk was deleted": deleted(overlay),
		"its seed was deleted": deleted(seed),
		"its base was deleted": deleted(base),
		"its disk's file is gone, and the daemon has not noticed":      unlinked(overlay),
		"its seed's file is gone, and the daemon has not noticed":      unlinked(seed),
		"its base's file is gone, and the daemon has not noticed":      unlinked(base),
		"all of its volumes were deleted, and only its domain is left": func(m *maker) { deleted(seed)(m); deleted(overlay)(m) },
	} {
		t.Run("L4: "+name, func(t *testing.T) {
			m := m.in(t)
			before := m.prints(uid)
			m.off(uid)
			lose(m)
			m.mustCreate(spec(uid, 1))
			if now := m.prints(uid); now == before {
				t.Error("it was not made anew: its disk and its seed are the old ones")
			}
			if on := base(m); len(m.files(on)) < 2 {
				t.Errorf("its disk is on %s, which is not there and published", on)
			}
			if all := m.files(libvirt.Prefix + "-" + m.names.Cluster() + "-vm-"); len(all) != 2 {
				t.Errorf("the pool holds %q", all)
			}
		})
	}
	m.delete(uid)
}

// prints tell disk and seed of an instance from others of their names; neither is kept when it is made anew.
func (m *maker) prints(uid string) string {
	m.t.Helper()
	out, err := m.host.Exec(m.t.Context(), "stat", "-c", "%i %w", filepath.Join(m.dir, m.names.Overlay(uid)), filepath.Join(m.dir, m.names.Seed(uid)))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
