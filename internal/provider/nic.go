// SPDX-License-Identifier: Apache-2.0

package provider

import "net/netip"

// NIC is what an address pool gives the guest's one NIC. Without Addresses the guest asks by DHCP, and without a MAC it has the one by its
// Proxy's UID.
type NIC struct {
	// MAC in lower case.
	MAC string
	// Addresses with the length of their network's prefix, at most one of each family.
	Addresses []netip.Prefix
	// Gateways and Nameservers that go with them; an Instance may have none, for marks did not keep them at first.
	Gateways, Nameservers []netip.Addr
}

// IPs are the addresses alone.
func (n NIC) IPs() []netip.Addr {
	var all []netip.Addr
	for _, a := range n.Addresses {
		all = append(all, a.Addr())
	}
	return all
}

// AddressHolder is a provider whose instances may have addresses of a pool. It knows of those that no Proxy tells of any more: retained
// and abandoned ones.
type AddressHolder interface {
	// HeldAddresses is who has an address, by the UID of its Proxy, as the hosts' marks were last read. It does no I/O.
	HeldAddresses() map[netip.Addr]string
}
