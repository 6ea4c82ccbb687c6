// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func TestHostsThatCannot(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    libvirttest.Config
		change func(*libvirt.Options)
		says   string
	}{
		{"no KVM", libvirttest.Config{NoKVM: true}, nil, "KVM"},
		{"no bridge", libvirttest.Config{Bridges: []string{"other"}}, nil, "bridge br0"},
		{"no network", libvirttest.Config{}, func(o *libvirt.Options) { o.Entry.Hosts[0].Network, o.Entry.Hosts[0].Bridge = "none", "" }, "network none"},
		{"H4e: a pool that is not of files", libvirttest.Config{PoolType: "logical"}, nil, "logical"},
		{"X16: no EFI", libvirttest.Config{NoEFI: true}, func(o *libvirt.Options) {
			i := o.Entry.Images["debian"]
			i.Firmware = config.FirmwareEFI
			o.Entry.Images["debian"] = i
		}, "EFI"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.cfg, func(o *libvirt.Options) {
				if c.change != nil {
					c.change(o)
				}
			})
			before := r.daemon.Dump()
			_, err := r.settle(t.Context(), r.spec())
			want(t, err, provider.Permanent, "host "+hostName, c.says)
			var e *provider.Error
			if errors.As(err, &e) && e.Reason != provider.HostIncapable {
				t.Errorf("reason %q", e.Reason)
			}
			if diff := cmp.Diff(before, r.daemon.Dump()); diff != "" {
				t.Errorf("something was made:\n%s", diff)
			}
		})
	}
	t.Run("emulation only where the entry allows it", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{NoKVM: true}, func(o *libvirt.Options) { o.Entry.AllowEmulation = true })
		r.mustMake(t)
		if text, _ := r.daemon.Backend().DomainXML(t.Context(), r.domain()); !strings.Contains(text, `type="qemu"`) || !strings.Contains(text, `mode="maximum"`) {
			t.Errorf("domain:\n%s", text)
		}
	})
}

// The rows M4 and M5 are proven on the real host; these are their decisions.
func TestRoomAndSize(t *testing.T) {
	t.Run("files that came behind the daemon's back are seen", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		r.daemon.FillPool(2<<30 + 100<<20)
		full := r.spec()
		full.UID = uuid.NewString()
		_, err := r.settle(t.Context(), full)
		want(t, err, provider.Capacity, "2.1 GiB free", "2.0 GiB are kept in reserve")
		r.daemon.FillPool(3 << 30)
		if _, err := r.settle(t.Context(), full); err != nil {
			t.Errorf("with room: %v", err)
		}
	})
	t.Run("an image that does not fit is not begun", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.daemon.FillPool(2 << 30)
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Capacity, "pool default")
		if got := r.daemon.VolumeNames(); len(got) > 0 {
			t.Errorf("left: %q", got)
		}
	})
	t.Run("a disk smaller than the image names both sizes, and a larger one mends it", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			o.Entry.Images["debian"] = config.Image{URL: imageFile(t, qcow2(3<<30)), Arch: "x86_64"}
		})
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Permanent, "diskSizeGb is 1", "1073741824 bytes", "3221225472 bytes", "set diskSizeGb to 3 or more")
		spec := r.spec()
		spec.DiskSizeGiB = 3
		if _, err := r.settle(t.Context(), spec); err != nil {
			t.Error(err)
		}
	})
	t.Run("a refresh that is refused for a while is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.mustMake(t)
			r.uid = uuid.NewString()
			r.daemon.BusyRefreshes(10)
			r.mustMake(t)
			r.daemon.BusyRefreshes(1000)
			r.uid = uuid.NewString()
			_, err := r.settle(t.Context(), r.spec())
			want(t, err, provider.Transient, "asynchronous jobs")
		})
	})
	t.Run("a refresh that failed is made good", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		r.daemon.FailRefreshes(1)
		r.uid = uuid.NewString()
		r.mustMake(t)
	})
}

func TestStatesThatCreateFinds(t *testing.T) {
	for _, c := range []struct {
		name          string
		state, reason int
		want          int
		kind          provider.Kind
		remade        bool
	}{
		{name: "stopped is started", state: 5, reason: 1, want: 1},
		{name: "paused from a snapshot is resumed", state: 3, reason: 7, want: 1},
		{name: "paused for want of room is resumed where there is room", state: 3, reason: 5, want: 1},
		{name: "paused by a user is left", state: 3, reason: 1, want: 3, kind: provider.Transient},
		{name: "crashed is made anew", state: 6, reason: 1, want: 1, remade: true},
		{name: "stopped by the watchdog is made anew", state: 3, reason: 6, want: 1, remade: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			first := r.mustMake(t)
			r.daemon.SetState(r.domain(), c.state, c.reason)
			calls := len(r.daemon.Calls())
			_, err := r.settle(t.Context(), r.spec())
			if c.want == 1 && err != nil {
				t.Fatal(err)
			} else if c.want != 1 {
				want(t, err, c.kind, "paused")
			}
			info, err := r.daemon.Backend().Domain(t.Context(), r.domain())
			if err != nil || info.State != c.want {
				t.Errorf("state %d, %v", info.State, err)
			}
			if defined := slices.Contains(r.daemon.Calls()[calls:], "Define "+r.domain()); defined != c.remade {
				t.Errorf("made anew: %t; first %v", defined, first.Created)
			}
		})
	}
	t.Run("paused for want of room stays paused while there is none", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		r.daemon.SetState(r.domain(), 3, 5)
		r.daemon.FillPool(1 << 20)
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Capacity)
	})
}
