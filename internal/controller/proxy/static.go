// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// assign chooses one address of each family that there are slots of: one that the instance has already, or else, counted on from a place
// that its UID decides, the first that nobody holds. exhausted says of a family why there is none.
func assign(uid string, has []netip.Addr, slots []config.Slot, held map[netip.Addr]string) (chosen []config.Slot, exhausted string) {
	for _, family := range []struct {
		name string
		is   func(netip.Addr) bool
	}{{"IPv4", netip.Addr.Is4}, {"IPv6", netip.Addr.Is6}} {
		var of []config.Slot
		for _, slot := range slots {
			if family.is(slot.Address.Addr()) {
				of = append(of, slot)
			}
		}
		if len(of) == 0 {
			continue
		}
		free := func(s config.Slot) bool {
			holder := held[s.Address.Addr()]
			return holder == "" || provider.CompactUID(holder) == provider.CompactUID(uid)
		}
		kept := slices.IndexFunc(of, func(s config.Slot) bool { return slices.Contains(has, s.Address.Addr()) && free(s) })
		start := int(preferred(uid) % uint64(len(of)))
		for i := 0; kept < 0 && i < len(of); i++ {
			if at := (start + i) % len(of); free(of[at]) {
				kept = at
			}
		}
		if kept < 0 {
			return nil, fmt.Sprintf("all %d %s addresses of its addressPools are in use", len(of), family.name)
		}
		chosen = append(chosen, of[kept])
	}
	return chosen, ""
}

// preferred place in a pool that a UID prefers: a Proxy whose status was lost gets the same address, as long as nobody has taken it.
func preferred(uid string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(provider.CompactUID(uid)))
	return hash.Sum64()
}

// slots are what the Proxy would have on each host of its entry. Hosts that have none left are added to avoid. The caller holds the lock of
// the notes.
func (r *Reconciler) slots(p *pass, hosts []provider.HostState, avoid map[string]string) map[string][]config.Slot {
	if len(p.entry.AddressPools) == 0 {
		return nil
	}
	held := r.held(p)
	all := map[string][]config.Slot{}
	for _, h := range hosts {
		chosen, exhausted := assign(string(p.proxy.UID), parsedAddresses(p.proxy.Status.AssignedAddresses), p.entry.Slots(h.Name), held)
		if exhausted != "" {
			avoid[h.Name] = exhausted
			p.exhausted = true
			continue
		}
		all[h.Name] = chosen
	}
	return all
}

// held is who has which address, by all that is known: the Proxies, and the marks on the hosts. The caller holds the lock of the notes.
func (r *Reconciler) held(p *pass) map[netip.Addr]string {
	held := r.notes.holders()
	if marks, ok := p.provider.(provider.AddressHolder); ok {
		for a, uid := range marks.HeldAddresses() {
			held[a] = uid
		}
	}
	return held
}

// unplaced is the reason where no host will do.
func (p *pass) unplaced() string {
	switch {
	case p.exhausted:
		return v1alpha1.ReasonCapacity
	case p.helpless:
		return v1alpha1.ReasonPermanent
	}
	return v1alpha1.ReasonPending
}

// settleAddresses sees to it that the instance which is about to be made, or made anew, has addresses that are its own. Others than those in
// the status are written there first.
func (r *Reconciler) settleAddresses(ctx context.Context, p *pass) (bool, error) {
	slots := p.entry.Slots(p.proxy.Status.Host)
	if err := r.recall(ctx); len(slots) == 0 || err != nil {
		return err == nil, err
	}
	var chosen []config.Slot
	var exhausted string
	has := parsedAddresses(p.proxy.Status.AssignedAddresses)
	r.notes.of(p.proxy.UID, func(n *note) {
		if chosen, exhausted = assign(string(p.proxy.UID), has, slots, r.held(p)); exhausted == "" {
			n.addresses = append(addressesOf(chosen), has...)
		}
	})
	if exhausted != "" {
		if p.found {
			return true, nil
		}
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonCapacity, "host "+p.proxy.Status.Host+": "+exhausted+"; add addresses, or delete a Proxy")
		p.lookAgain(probe.Jitter(r.retry(p.proxy.UID)))
		return false, nil
	}
	p.spec.NIC = nicOf(chosen)
	if wanted := texts(addressesOf(chosen)); !p.found && !slices.Equal(wanted, p.proxy.Status.AssignedAddresses) {
		p.proxy.Status.AssignedAddresses = wanted
		return true, r.patchStatus(ctx, p, client.MergeFromWithOptions(p.stored, client.MergeFromWithOptimisticLock{}))
	}
	return true, nil
}

// nicOf is what slots give a guest.
func nicOf(slots []config.Slot) provider.NIC {
	var nic provider.NIC
	for _, slot := range slots {
		nic.MAC = cmp.Or(nic.MAC, slot.MAC)
		nic.Addresses = append(nic.Addresses, slot.Address)
		nic.Gateways = append(nic.Gateways, slot.Gateway)
		for _, server := range slot.Nameservers {
			if !slices.Contains(nic.Nameservers, server) {
				nic.Nameservers = append(nic.Nameservers, server)
			}
		}
	}
	return nic
}

func addressesOf(slots []config.Slot) []netip.Addr {
	var all []netip.Addr
	for _, slot := range slots {
		all = append(all, slot.Address.Addr())
	}
	return all
}

func texts(addresses []netip.Addr) []string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return all
}

// parsedAddresses of a status; what is none is left out.
func parsedAddresses(all []string) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, a)
		}
	}
	return addresses
}
