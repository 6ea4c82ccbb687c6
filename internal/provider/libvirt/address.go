// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// addressSources in the order of trust: the guest itself, who gave it the address, and who saw it.
var addressSources = []AddressSource{SourceAgent, SourceLease, SourceARP}

// addressesOf picks the usable addresses of the NIC with our MAC: IPv4 first, then global IPv6, then private IPv6.
func addressesOf(mac string, interfaces []Interface) []netip.Addr {
	var found []netip.Addr
	for _, nic := range interfaces {
		if !strings.EqualFold(nic.MAC, mac) {
			continue
		}
		for _, a := range nic.Addresses {
			if a = a.Unmap(); usable(a) && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}
	slices.SortFunc(found, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(preference(a), preference(b)), a.Compare(b))
	})
	return found
}

func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

func preference(a netip.Addr) int {
	switch {
	case a.Is4():
		return 0
	case a.IsPrivate():
		return 2
	}
	return 1
}
