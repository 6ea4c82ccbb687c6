// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// macOr is the MAC that a pool gave, or the one by the UID.
func (n Names) macOr(given, uid string) string { return cmp.Or(given, n.MAC(uid)) }

// mac of the guest's NIC.
func (c *creation) mac() string { return c.names.macOr(c.spec.NIC.MAC, c.uid) }

// knownAddresses are those that were last read, or else those that we gave the guest.
func (p *Provider) knownAddresses(t target, mark Mark) []netip.Addr {
	if known := t.lastKnown(t.uid); len(known) > 0 {
		return known
	}
	return mark.NIC.IPs()
}

// HeldAddresses is who has an address of a pool, as the marks on all hosts were last read.
func (p *Provider) HeldAddresses() map[netip.Addr]string {
	held := map[netip.Addr]string{}
	for _, h := range p.hosts {
		h.mu.Lock()
		for _, known := range h.marks {
			for _, a := range known.static {
				held[a] = known.uid
			}
		}
		h.mu.Unlock()
	}
	return held
}

// checkAddresses refuses an address that an instance has whose Proxy does not tell of it: one that was retained, say. The host is asked
// first, for nothing may have been read from it yet.
func (c *creation) checkAddresses(ctx context.Context) error {
	if len(c.spec.NIC.Addresses) == 0 {
		return nil
	}
	if _, err := c.countInstances(ctx, c.host); err != nil {
		return err
	}
	held := c.HeldAddresses()
	taken := slices.IndexFunc(c.spec.NIC.IPs(), func(a netip.Addr) bool { return held[a] != "" && !SameUID(held[a], c.uid) })
	if taken < 0 {
		return nil
	}
	a := c.spec.NIC.IPs()[taken]
	return &provider.Error{
		Kind: provider.Capacity, Host: c.name, Object: c.object(),
		Message: fmt.Sprintf("its address %s of addressPools is that of domain %s", a, c.names.Domain(held[a])),
		Next:    "it gets another one; remove that domain if nobody needs it",
	}
}
