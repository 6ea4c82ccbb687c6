// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package create proves on a real host what Create does about refused definitions, deaths in its middle, pools without room, disks too small for
// their image, hosts that cannot run a guest, and instances that have lost a disk.
package create

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// createHost is a host of these tests' own.
const createHost = 52

// Deadlines, from the steps that they bound: a fetch of an image of some KiB, and an instance whose guest halts in its boot sector, on a busy machine.
const (
	madeWithin    = 2 * time.Minute
	deletedWithin = time.Minute
	seenWithin    = 2 * time.Minute
	cleanupTime   = time.Minute
)

const (
	imageKey  = "halts"
	imagesDir = "/var/lib/libvirt/images"
	// roomyPool is a pool of its own, whose size the tests change behind the daemon's back.
	roomyPool = "roomy"
	roomyDir  = "/var/lib/libvirt/roomy"
)

func TestMain(m *testing.M) {
	if os.Getenv(dieAt) != "" {
		os.Exit(dying())
	}
	goleak.VerifyTestMain(m)
}

// maker is one cluster's provider over the host.
type maker struct {
	*libvirt.Provider
	t     *testing.T
	host  *kvmhost.Host
	dir   string // of the pool, on the host
	names libvirt.Names
	hand  libvirt.Backend // past the provider
}

// in is the maker within a subtest.
func (m *maker) in(t *testing.T) *maker {
	one := *m
	one.t = t
	return &one
}

// theHost is up, and holds nothing of ours.
func theHost(t *testing.T) *kvmhost.Host {
	t.Helper()
	h := kvmhost.Up(t, createHost)
	wipe := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if err := lab.Wipe(ctx, h); err != nil {
			t.Errorf("what is ours on the host is left: %v", err)
		}
	}
	wipe() // of a run that was killed
	t.Cleanup(wipe)
	return h
}

// newMaker starts a provider of a new cluster; change, if not nil, changes its options.
func newMaker(t *testing.T, h *kvmhost.Host, change func(*libvirt.Options)) *maker {
	t.Helper()
	_, _, empty := kvmhost.Images(t)
	o, depot, err := options(h, libvirttest.FreshCluster(), empty, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(depot.Close)
	if change != nil {
		change(&o)
	}
	names, err := libvirt.NewNames(o.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	p, err := libvirt.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	hand := kvm2.Backends(o.Entry.Credentials)(o.Entry.Hosts[0])
	t.Cleanup(hand.Close)
	dir := imagesDir
	if o.Entry.Hosts[0].Pool == roomyPool {
		dir = roomyDir
	}
	return &maker{p, t, h, dir, names, hand}
}

func options(h *kvmhost.Host, cluster, path, spool string) (libvirt.Options, *image.Depot, error) {
	depot, err := image.NewDepot(image.DepotOptions{SpoolDir: spool, SpoolBytes: 1 << 30})
	entry := lab.EntryOf(h, "kvm2-create", imageKey, config.Image{URL: "file://" + path})
	return libvirt.Options{
		Cluster: cluster, Entry: entry, Backend: kvm2.Backends(entry.Credentials), Agent: libvirttest.Agent, Depot: depot, CheckInterval: time.Second,
	}, depot, err
}

// spec of a small instance that runs no agent.
func spec(uid string, diskGiB int) provider.InstanceSpec {
	s := libvirttest.Spec(lab.EntryHost, uid, imageKey)
	s.Software, s.DiskSizeGiB = provider.SoftwareNone, diskGiB
	return s
}

func ref(uid string) provider.InstanceRef { return provider.InstanceRef{Host: lab.EntryHost, UID: uid} }

func newUID() string { return uuid.NewString() }

// create makes an instance, and returns how that ended, when nothing is in progress any more.
func create(ctx context.Context, p *libvirt.Provider, s provider.InstanceSpec) (provider.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, madeWithin)
	defer cancel()
	for {
		i, err := p.Create(ctx, s)
		if !provider.IsInProgress(err) {
			return i, err
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return i, errors.Join(ctx.Err(), err)
		}
	}
}

func (m *maker) create(s provider.InstanceSpec) (provider.Instance, error) {
	return create(m.t.Context(), m.Provider, s)
}

func (m *maker) mustCreate(s provider.InstanceSpec) {
	m.t.Helper()
	if _, err := m.create(s); err != nil {
		m.t.Fatal(err)
	}
	m.whole(s.UID)
}

// whole says that an instance runs, with the volumes of its own, by the daemon's own word.
func (m *maker) whole(uid string) {
	m.t.Helper()
	info, err := m.hand.Domain(m.t.Context(), m.names.Domain(uid))
	if err != nil || info.State != 1 || !info.Persistent {
		m.t.Errorf("the domain is %+v, %v", info, err)
	}
	if own, want := m.own(uid), []string{m.names.Overlay(uid), m.names.Seed(uid)}; !slices.Equal(own, slices.Sorted(slices.Values(want))) {
		m.t.Errorf("its volumes are %q", own)
	}
}

// delete removes an instance to its end, and looks whether anything of it is left.
func (m *maker) delete(uid string) {
	m.t.Helper()
	err := lab.Until(m.t.Context(), deletedWithin, "instance "+uid+" to be gone", func(ctx context.Context) (bool, error) {
		err := m.Delete(ctx, ref(uid))
		return provider.IsNotFound(err), ifNot(err, provider.NotFound)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.nothing(uid)
}

func ifNot(err error, kind provider.Kind) error {
	if err != nil && provider.KindOf(err) == kind {
		return nil
	}
	return err
}

// nothing says that the host has nothing of an instance, by its files.
func (m *maker) nothing(uid string) {
	m.t.Helper()
	if _, err := m.hand.Domain(m.t.Context(), m.names.Domain(uid)); !libvirt.IsCode(err, libvirt.CodeNoDomain) {
		m.t.Errorf("the domain is there: %v", err)
	}
	if own := m.own(uid); len(own) > 0 {
		m.t.Errorf("left: %q", own)
	}
}

// own are the files of an instance in the pool.
func (m *maker) own(uid string) []string { return m.files(m.names.Domain(uid)) }

// files of the pool whose names begin so.
func (m *maker) files(prefix string) []string {
	m.t.Helper()
	out, err := m.host.Exec(m.t.Context(), "find", m.dir, "-name", prefix+"*", "-printf", "%f\\n")
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.Sorted(slices.Values(strings.Fields(out)))
}

func wantError(t *testing.T, err error, kind provider.Kind, says ...string) {
	t.Helper()
	if err == nil || provider.KindOf(err) != kind {
		t.Errorf("got %v, want %v", err, kind)
		return
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// wideImage is an image whose guest halts, with a disk of that many GiB.
func wideImage(t *testing.T, gib int) string {
	t.Helper()
	_, _, empty := kvmhost.Images(t)
	path := filepath.Join(t.TempDir(), "wide.qcow2")
	for _, args := range [][]string{
		{"convert", "-O", "qcow2", empty, path},
		{"resize", "-q", path, fmt.Sprintf("%dG", gib)},
	} {
		if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %q: %v\n%s", args, err, out)
		}
	}
	return path
}

// hooked is a Backend on which a test waits, or counts.
type hooked struct {
	libvirt.Backend
	before func(ctx context.Context, method, object string) error
}

func hook(o *libvirt.Options, before func(ctx context.Context, method, object string) error) {
	connect := o.Backend
	o.Backend = func(h config.Host) libvirt.Backend { return &hooked{connect(h), before} }
}

func (b *hooked) Define(ctx context.Context, xml string) error {
	if err := b.before(ctx, "Define", xml); err != nil {
		return err
	}
	return b.Backend.Define(ctx, xml)
}

func (b *hooked) CreateVolume(ctx context.Context, xml string) error {
	if err := b.before(ctx, "CreateVolume", xml); err != nil {
		return err
	}
	return b.Backend.CreateVolume(ctx, xml)
}
