// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// named is an entry of one host.
func named(t *testing.T, d *libvirttest.Daemon, entry, host string) libvirt.Options {
	t.Helper()
	o := options(t, d)
	o.Entry.Name, o.Entry.Hosts[0].Name, o.CheckInterval = entry, host, time.Minute
	return o
}

// A part of H4, whose proof is live.
func TestOnePlaceUnderTwoNames(t *testing.T) {
	looked := func() { time.Sleep(70 * time.Second); synctest.Wait() } // of the bubble's own clock
	for _, c := range []struct {
		name          string
		machine, pool string // of the second daemon
		duplicate     bool
	}{
		{name: "the same libvirt and pool", machine: "m", pool: "p", duplicate: true},
		{name: "another pool of the same libvirt, or of a machine that was cloned", machine: "m", pool: "q"},
		{name: "a pool that was copied to another machine", machine: "n", pool: "p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := named(t, libvirttest.New(libvirttest.Config{UUID: "m", PoolUUID: "p"}), "kvm2-home", "attic")
				second := named(t, libvirttest.New(libvirttest.Config{UUID: c.machine, PoolUUID: c.pool}), "kvm2-work", "rack1")
				second.Places = libvirt.NewPlaces([]config.Entry{first.Entry, second.Entry})
				first.Places = second.Places
				// The second is looked at first, and has an instance before anybody can know.
				late, err := libvirt.New(second)
				if err != nil {
					t.Fatal(err)
				}
				defer late.Close()
				looked()
				r := &rig{Provider: late, uid: uuid.NewString()}
				had := r.spec()
				had.Host = "rack1"
				if _, err := r.settle(t.Context(), had); err != nil {
					t.Fatal(err)
				}
				early, err := libvirt.New(first)
				if err != nil {
					t.Fatal(err)
				}
				defer early.Close()
				looked()
				if h := early.Hosts()[0]; !h.Ready {
					t.Errorf("the first of the file: %+v", h)
				}
				h := late.Hosts()[0]
				if h.Ready == c.duplicate || (h.Reason == provider.HostDuplicate) != c.duplicate {
					t.Errorf("the second of the file: %+v", h)
				}
				fresh := had
				fresh.UID = uuid.NewString()
				_, err = r.settle(t.Context(), fresh)
				if !c.duplicate {
					if err != nil {
						t.Error(err)
					}
					return
				}
				says := []string{"host rack1", "host attic of entry kvm2-home", "pool default", "take one of the two out", "host_uuid"}
				want(t, err, provider.Capacity, says...)
				for _, part := range says {
					if !strings.Contains(h.Message, part) {
						t.Errorf("%q does not say %q", h.Message, part)
					}
				}
				// What it had goes on: it is read, started again where it stopped, and deleted.
				if i, err := late.Get(t.Context(), had.InstanceRef); err != nil || i.State != provider.StateRunning {
					t.Errorf("%+v, %v", i, err)
				}
				if err := second.Backend(second.Entry.Hosts[0]).Destroy(t.Context(), domainOf(t, had.UID)); err != nil {
					t.Fatal(err)
				}
				if i, err := late.Create(t.Context(), had); err != nil || i.State != provider.StateRunning {
					t.Errorf("started again: %+v, %v", i, err)
				}
				if err := late.Delete(t.Context(), had.InstanceRef); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// domainOf is the name of an instance's domain.
func domainOf(t *testing.T, uid string) string {
	t.Helper()
	names, err := libvirt.NewNames(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return names.Domain(uid)
}

func TestOneEntryHasAPlaceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := libvirttest.New(libvirttest.Config{})
		o := named(t, d, "kvm2-home", "attic")
		o.Entry.Hosts = append(o.Entry.Hosts, config.Host{Name: "rack1", Address: "198.51.100.8", Pool: "default", Bridge: "br0"})
		p, err := libvirt.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		time.Sleep(70 * time.Second) // of the bubble's own clock
		if states := p.Hosts(); !states[0].Ready || states[1].Ready || states[1].Reason != provider.HostDuplicate || !strings.Contains(states[1].Message, "this is host attic under another name") {
			t.Errorf("%+v", states)
		}
	})
}
