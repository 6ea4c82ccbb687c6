// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	r.DoubtAddresses(r.ref()) // nobody tells of a lease
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
	if got := r.addresses(t); got != "192.0.2.9" {
		t.Errorf("when nothing changed: %q", got)
	}
	r.DoubtAddresses(r.ref())
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
	for _, method := range []string{"Domains", "Metadata", "InterfaceAddresses"} {
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
	// Of C5, which is about snapshots and the providers file too.
	t.Run("a mark of a newer version is left alone, and said", func(t *testing.T) {
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
