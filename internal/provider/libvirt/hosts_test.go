// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func TestListOverHosts(t *testing.T) {
	daemons := map[string]*libvirttest.Daemon{"kvm-1": libvirttest.New(libvirttest.Config{}), "kvm-2": libvirttest.New(libvirttest.Config{})}
	o := options(t, daemons["kvm-1"])
	o.Entry.Hosts = append(o.Entry.Hosts, config.Host{Name: "kvm-2", Address: "198.51.100.8", Pool: "default", Network: "default"})
	o.Backend = func(h config.Host) libvirt.Backend { return daemons[h.Name].Backend() }
	r := rigOver(t, daemons["kvm-1"], o)
	var made []provider.InstanceRef
	for _, host := range []string{"kvm-1", "kvm-2", "kvm-2"} {
		spec := r.spec()
		spec.Host, spec.UID = host, uuid.NewString()
		if _, err := r.settle(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		made = append(made, spec.InstanceRef)
	}
	daemons["kvm-2"].AddDomain("somebody-elses", "", true)
	all, err := r.List(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("list: %+v, %v", all, err)
	}
	for _, ref := range made {
		if !slices.ContainsFunc(all, func(i provider.Instance) bool { return i.InstanceRef == ref && i.State == provider.StateRunning }) {
			t.Errorf("%+v is missing", ref)
		}
	}
	for _, method := range []string{"Domains", "Metadata"} {
		t.Run("M15: the link dies before "+method+", and the list fails as a whole", func(t *testing.T) {
			daemons["kvm-2"].SetFaults(failing(method, errLink), nil)
			defer daemons["kvm-2"].SetFaults(nil, nil)
			all, err := r.List(t.Context())
			want(t, err, provider.Transient, "host kvm-2", "the link broke")
			if all != nil {
				t.Errorf("a part of the list came with the error: %+v", all)
			}
		})
	}
	t.Run("M15: the link dies after some marks were read", func(t *testing.T) {
		read := 0
		daemons["kvm-2"].SetFaults(func(_ context.Context, m, _ string) error {
			if m == "Metadata" {
				if read++; read > 1 {
					return errLink
				}
			}
			return nil
		}, nil)
		defer daemons["kvm-2"].SetFaults(nil, nil)
		if all, err := r.List(t.Context()); err == nil || all != nil {
			t.Errorf("got %+v, %v", all, err)
		}
	})
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    libvirttest.Config
		before libvirttest.Fault
		fill   int64
		reason string
		says   string
	}{
		{name: "ready", reason: provider.HostReady},
		{name: "unreachable", before: failing("Host", errLink), reason: provider.HostUnreachable, says: "the link broke"},
		{name: "unauthorized", before: failing("Host", &libvirt.HostError{Reason: provider.HostUnauthorized, Message: "revoked"}), reason: provider.HostUnauthorized, says: "revoked"},
		{name: "incapable", cfg: libvirttest.Config{NoKVM: true}, reason: provider.HostIncapable, says: "KVM"},
		{name: "degraded", before: failing("Domains", &libvirt.DaemonError{Code: 1, Message: "no"}), reason: provider.HostDegraded, says: "no"},
		{name: "full", fill: 1 << 30, reason: provider.HostDegraded, says: "reserve"},
		{name: "silent", before: func(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }, reason: provider.HostTimeout, says: "time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := libvirttest.New(c.cfg)
				if c.fill > 0 {
					d.FillPool(c.fill)
					if _, err := d.Backend().Pool(t.Context(), true); err != nil {
						t.Fatal(err)
					}
				}
				d.SetFaults(c.before, nil)
				o := options(t, d)
				o.CheckInterval = time.Minute
				p, err := libvirt.New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				time.Sleep(20 * time.Second) // of the bubble's own clock
				h := p.Hosts()[0]
				if h.Name != hostName || h.Reason != c.reason || h.Ready != (c.reason == provider.HostReady) || !strings.Contains(h.Message, c.says) {
					t.Errorf("got %+v", h)
				}
				if h.Ready && (!h.RoomKnown || h.PoolAvailableGiB != 98 || h.FreeMemoryMiB == 0) {
					t.Errorf("room: %+v", h)
				}
				refreshes := slices.Contains(d.Calls(), "RefreshPool") && c.fill == 0
				if refreshes {
					t.Error("the round refreshed the pool")
				}
				// It comes back by itself.
				d.SetFaults(nil, nil)
				d.FillPool(90 << 30)
				if _, err := d.Backend().Pool(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(70 * time.Second)
				if h := p.Hosts()[0]; h.Ready == c.cfg.NoKVM {
					t.Errorf("a minute later: %+v", h)
				}
			})
		})
	}
}

func TestHostsCountInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := libvirttest.New(libvirttest.Config{})
		o := options(t, d)
		o.CheckInterval = time.Minute
		p, err := libvirt.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		names, _ := libvirt.NewNames(cluster)
		r := &rig{p, d, names, uuid.NewString()}
		r.mustMake(t)
		d.AddDomain("somebody-elses", "", true)
		d.AddDomain(names.Domain(uuid.NewString()), "", true) // without a mark
		time.Sleep(70 * time.Second)
		if n := p.Hosts()[0].Instances; n != 1 {
			t.Errorf("%d instances", n)
		}
		if err := p.Delete(t.Context(), r.ref()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(70 * time.Second)
		if n := p.Hosts()[0].Instances; n != 0 {
			t.Errorf("%d instances after the delete", n)
		}
	})
}

func TestAnotherPoolInTheFile(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	before := r.ours()
	o := options(t, r.daemon)
	o.Entry.Hosts[0].Pool = "big"
	moved := rigOver(t, r.daemon, o)
	moved.uid = r.uid
	_, err := moved.Create(t.Context(), moved.spec())
	want(t, err, provider.Permanent, "default", "big", hostName)
	want(t, moved.Delete(t.Context(), moved.ref()), provider.Permanent, "default", "big", hostName)
	if diff := cmp.Diff(before, r.ours()); diff != "" {
		t.Errorf("something of the instance changed: %s", diff)
	}
}

func TestHostsSayWhatTheyLackForWhichImage(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   libvirttest.Config
		lacks map[string]string
	}{
		"X16: all that an x86 host has": {lacks: map[string]string{"arm": "architecture aarch64 (the host is x86_64)"}},
		"X16: no EFI": {
			cfg: libvirttest.Config{NoEFI: true}, lacks: map[string]string{"arm": "architecture aarch64 (the host is x86_64)", "efi": "EFI firmware (install ovmf or edk2)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := libvirttest.New(c.cfg)
				o := options(t, d)
				o.Entry.Images = map[string]config.Image{
					"debian": {URL: "file:///nonexistent", Arch: config.ArchX8664}, "efi": {URL: "file:///nonexistent", Arch: config.ArchX8664, Firmware: config.FirmwareEFI},
					"arm": {URL: "file:///nonexistent", Arch: config.ArchAArch64, Firmware: config.FirmwareEFI},
				}
				o.Entry.AllowURLImages = []string{"images.example"}
				p, err := libvirt.New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				synctest.Wait()
				if h := p.Hosts()[0]; !h.Ready || !maps.Equal(h.Lacks, c.lacks) {
					t.Errorf("got %+v, want what it lacks to be %v", h, c.lacks)
				}
			})
		})
	}
}
