// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"errors"
	"net/netip"
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

var errLink = &libvirt.HostError{Reason: provider.HostUnreachable, Message: "the link broke"}

// failing fails the calls of one method.
func failing(method string, err error) libvirttest.Fault {
	return func(_ context.Context, m, _ string) error {
		if m == method {
			return err
		}
		return nil
	}
}

func (r *rig) nic(addresses ...string) []libvirt.Interface {
	nic := libvirt.Interface{Name: "eth0", MAC: r.names.MAC(r.uid)}
	for _, a := range addresses {
		nic.Addresses = append(nic.Addresses, netip.MustParseAddr(a))
	}
	return []libvirt.Interface{nic, {Name: "docker0", MAC: "02:42:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("172.17.0.1")}}}
}

func (r *rig) addresses(t *testing.T) string {
	t.Helper()
	i, err := r.Get(t.Context(), r.ref())
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if i.State != provider.StateRunning {
		t.Errorf("state %s", i.State)
	}
	var all []string
	for _, a := range i.Addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// The rows H3 and M14 are proven on the real host; these are their decisions.
func TestAddresses(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	set := func(source libvirt.AddressSource, nics []libvirt.Interface, err error) {
		r.daemon.SetAddresses(r.domain(), source, nics, err)
	}
	if got := r.addresses(t); got != "" {
		t.Errorf("before the guest has one: %q", got)
	}
	set(libvirt.SourceARP, r.nic("192.0.2.3"), nil)
	if got := r.addresses(t); got != "192.0.2.3" {
		t.Errorf("by ARP: %q", got)
	}
	set(libvirt.SourceLease, r.nic("192.0.2.2"), nil)
	if got := r.addresses(t); got != "192.0.2.2" {
		t.Errorf("by lease: %q", got)
	}
	set(libvirt.SourceAgent, r.nic("fe80::1", "2001:db8::1", "192.0.2.1"), nil)
	if got := r.addresses(t); got != "192.0.2.1 2001:db8::1" {
		t.Errorf("by the agent: %q", got)
	}

	unresponsive := &libvirt.DaemonError{Code: libvirt.CodeAgentUnresponsive, Message: "Guest agent is not responding"}
	set(libvirt.SourceAgent, nil, unresponsive)
	set(libvirt.SourceLease, nil, nil)
	set(libvirt.SourceARP, nil, &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "wrong nlmsg len"})
	if got := r.addresses(t); got != "192.0.2.1 2001:db8::1" {
		t.Errorf("while the agent restarts: %q", got)
	}
	set(libvirt.SourceAgent, r.nic("192.0.2.9"), nil)
	if got := r.addresses(t); got != "192.0.2.9" {
		t.Errorf("after a change: %q", got)
	}

	r.daemon.SetFaults(failing("InterfaceAddresses", errLink), nil)
	_, err := r.Get(t.Context(), r.ref())
	want(t, err, provider.Transient, "the link broke")
	r.daemon.SetFaults(nil, nil)

	b := r.daemon.Backend()
	if err := errors.Join(b.Destroy(t.Context(), r.domain()), b.Start(t.Context(), r.domain())); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), r.ref()); err != nil {
		t.Fatal(err)
	}
}

func TestNoSourceAnswers(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	r.daemon.SetFaults(failing("InterfaceAddresses", &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "no"}), nil)
	_, err := r.Get(t.Context(), r.ref())
	want(t, err, provider.Transient, "reading the addresses")
}

func TestAStoppedGuestHasNoAddress(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	r.daemon.SetAddresses(r.domain(), libvirt.SourceAgent, r.nic("192.0.2.1"), nil)
	r.addresses(t)
	b := r.daemon.Backend()
	if err := b.Destroy(t.Context(), r.domain()); err != nil {
		t.Fatal(err)
	}
	if i, err := r.Get(t.Context(), r.ref()); err != nil || i.State != provider.StateStopped || i.Addresses != nil || i.StateReason != "stopped: destroyed" {
		t.Errorf("got %+v, %v", i, err)
	}
	if err := b.Start(t.Context(), r.domain()); err != nil {
		t.Fatal(err)
	}
	if got := r.addresses(t); got != "" {
		t.Errorf("after a restart: %q", got)
	}
}

func TestAbsence(t *testing.T) {
	for _, method := range []string{"Metadata", "InterfaceAddresses"} {
		t.Run("L6: the domain vanishes before "+method, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.mustMake(t)
			r.daemon.SetFaults(func(_ context.Context, m, _ string) error {
				if m == method {
					r.daemon.RemoveDomain(r.domain())
				}
				return nil
			}, nil)
			_, err := r.Get(t.Context(), r.ref())
			want(t, err, provider.NotFound)
		})
	}
	t.Run("L6: the domain vanishes while it is deleted, and its volumes go all the same", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		r.daemon.SetFaults(func(_ context.Context, m, _ string) error {
			if m == "Metadata" {
				r.daemon.RemoveDomain(r.domain())
			}
			return nil
		}, nil)
		if err := r.Delete(t.Context(), r.ref()); err != nil {
			t.Error(err)
		}
		if left := r.ours(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	// The row X10 is proven on the real host.
	for _, method := range []string{"Domain", "Metadata", "InterfaceAddresses"} {
		for name, fault := range map[string]error{
			"a dead link": errLink, "an ended context": context.Canceled, "a daemon that restarts": &libvirt.DaemonError{Code: libvirt.CodeRPC, Message: "broken pipe"},
		} {
			t.Run(name+" before "+method+" is no absence", func(t *testing.T) {
				r := newRig(t, libvirttest.Config{})
				r.mustMake(t)
				r.daemon.SetFaults(failing(method, fault), nil)
				_, err := r.Get(t.Context(), r.ref())
				want(t, err, provider.Transient)
			})
		}
	}
	t.Run("a dead link is no absence for delete either", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		for _, method := range []string{"Domain", "Volumes"} {
			r.daemon.SetFaults(failing(method, errLink), nil)
			want(t, r.Delete(t.Context(), r.ref()), provider.Transient)
		}
	})
}

func TestANewerMark(t *testing.T) {
	t.Run("C5: a mark of a newer version is left alone, and said", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		if err := r.daemon.Backend().SetMetadata(t.Context(), r.domain(), libvirt.MarkNamespace, "egress", `<instance version="2"/>`); err != nil {
			t.Fatal(err)
		}
		before := r.daemon.Dump()
		_, err := r.Get(t.Context(), r.ref())
		want(t, err, provider.Permanent, "version 2", "newer")
		_, err = r.Create(t.Context(), r.spec())
		want(t, err, provider.Permanent, "newer")
		want(t, r.Delete(t.Context(), r.ref()), provider.Permanent, "newer")
		_, err = r.List(t.Context())
		want(t, err, provider.Permanent, r.domain())
		if diff := cmp.Diff(before, r.daemon.Dump()); diff != "" {
			t.Errorf("it was changed:\n%s", diff)
		}
	})
}

func TestDeleteLooksBeforeItActs(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	calls := len(r.daemon.Calls())
	if err := r.Delete(t.Context(), r.ref()); err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, c := range r.daemon.Calls()[calls:] {
		if strings.Contains(c, "-vm-") || c == "Volumes" {
			own = append(own, strings.Split(c, " ")[0])
		}
	}
	if want := []string{"Domain", "Metadata", "Volumes", "Destroy", "Undefine", "DeleteVolume", "DeleteVolume"}; !slices.Equal(own, want) {
		t.Errorf("calls %q, want %q", own, want)
	}
	if left := r.ours(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestDeleteOfATransientDomain(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	if err := r.daemon.Backend().Undefine(t.Context(), r.domain()); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), r.ref()); err != nil {
		t.Fatal(err)
	}
	want(t, r.Delete(t.Context(), r.ref()), provider.NotFound)
	if left := r.ours(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

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
