// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

var _ provider.AddressHolder = (*scripted)(nil)

// pooled gives the world's entry a pool of two addresses.
func pooled(f *config.File) {
	f.Entries[0].AddressPools = []config.AddressPool{{
		Network: "198.51.100.0/24", Gateway: "198.51.100.1", Nameservers: []string{"198.51.100.1"}, Addresses: []string{"198.51.100.10-198.51.100.11"},
	}}
}

func TestAddressesOfAPool(t *testing.T) {
	w := newWorld(t)
	w.configure(pooled)
	first, second := w.made("first", nil), w.made("second", nil)
	given := map[string]string{}
	for _, p := range []*v1alpha1.Proxy{first, second} {
		if len(p.Status.AssignedAddresses) != 1 || given[p.Status.AssignedAddresses[0]] != "" {
			t.Fatalf("%s has %v, others %v", p.Name, p.Status.AssignedAddresses, given)
		}
		given[p.Status.AssignedAddresses[0]] = p.Name
		if nic := w.provider.of(p.UID).spec.NIC; len(nic.Addresses) != 1 || nic.Addresses[0].String() != p.Status.AssignedAddresses[0]+"/24" || nic.Gateways[0].String() != "198.51.100.1" {
			t.Errorf("%s was made with %+v", p.Name, nic)
		}
	}
	third := w.proxy("third", nil)
	w.create(third)
	third = w.wait(third, "waits for an address", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonCapacity))
	if m := message(third, v1alpha1.ConditionProvisioned); !strings.Contains(m, "all 2 IPv4 addresses of its addressPools are in use") {
		t.Error(m)
	}
	w.stop()
	w.start() // what each has is in its status
	w.delete(first)
	third = w.wait(third, "Ready with the address that is free now", ready)
	if !slices.Equal(third.Status.AssignedAddresses, first.Status.AssignedAddresses) {
		t.Errorf("has %v, and %v is free", third.Status.AssignedAddresses, first.Status.AssignedAddresses)
	}
	w.holds(second, "untouched", func(p *v1alpha1.Proxy) bool {
		return ready(p) && slices.Equal(p.Status.AssignedAddresses, second.Status.AssignedAddresses)
	})
	t.Run("an instance that is made anew keeps its address", func(t *testing.T) {
		w.provider.lose(second.UID)
		p := w.wait(second, "made anew", func(p *v1alpha1.Proxy) bool { return w.provider.of(p.UID) != nil && ready(p) })
		if !slices.Equal(p.Status.AssignedAddresses, second.Status.AssignedAddresses) {
			t.Errorf("had %v, has %v", second.Status.AssignedAddresses, p.Status.AssignedAddresses)
		}
	})
}

func TestAnAddressThatARetainedInstanceHasIsLeft(t *testing.T) {
	w := newWorld(t)
	w.configure(pooled)
	w.provider.change(func() {
		w.provider.held = map[netip.Addr]string{netip.MustParseAddr("198.51.100.10"): uuid.NewString()}
	})
	p := w.made("p", nil)
	if !slices.Equal(p.Status.AssignedAddresses, []string{"198.51.100.11"}) {
		t.Errorf("has %v", p.Status.AssignedAddresses)
	}
}
