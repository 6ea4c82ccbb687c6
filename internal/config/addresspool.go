// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxPoolAddresses of one pool.
const maxPoolAddresses = 4096

// Slot is one address that a guest may have, with what belongs to it.
type Slot struct {
	// Address with the length of its network's prefix.
	Address netip.Prefix
	Gateway netip.Addr
	// Nameservers that a guest with this address asks.
	Nameservers []netip.Addr
	// MAC that goes with the address; empty where any will do.
	MAC string
}

// Slots are all addresses that the pools have for guests of a host, in the order of the file. Values that a providers file may not have are
// left out.
func (e *Entry) Slots(host string) []Slot {
	var all []Slot
	for i := range e.AddressPools {
		if p := &e.AddressPools[i]; len(p.Hosts) == 0 || slices.Contains(p.Hosts, host) {
			all = append(all, p.slots()...)
		}
	}
	return all
}

func (p *AddressPool) slots() []Slot {
	network, err := netip.ParsePrefix(p.Network)
	if err != nil {
		return nil
	}
	gateway, err := netip.ParseAddr(p.Gateway)
	if err != nil {
		return nil
	}
	macs := map[netip.Addr]string{}
	for text, mac := range p.MACs {
		if a, err := netip.ParseAddr(text); err == nil {
			macs[a] = strings.ToLower(mac)
		}
	}
	var servers []netip.Addr
	for _, text := range p.Nameservers {
		if a, err := netip.ParseAddr(text); err == nil {
			servers = append(servers, a)
		}
	}
	var all []Slot
	for _, text := range p.Addresses {
		addresses, _ := addressRange(text)
		for _, a := range addresses {
			if a != gateway && !slices.Contains(servers, a) && !reserved(a, network) {
				all = append(all, Slot{netip.PrefixFrom(a, network.Bits()), gateway, servers, macs[a]})
			}
		}
	}
	return all
}

// reserved are the addresses of a network that no machine may have.
func reserved(a netip.Addr, network netip.Prefix) bool {
	if network.Addr().BitLen()-network.Bits() < 2 {
		return false
	}
	return a == network.Addr() || a.Is4() && !network.Contains(a.Next())
}

// addressRange are the addresses that one item of a pool stands for, or what is wrong with it.
func addressRange(text string) (all []netip.Addr, wrong string) {
	const wanted = "must be an address, a range such as 198.51.100.16-198.51.100.31, or a network such as 198.51.100.16/28"
	first, last, isRange := strings.Cut(text, "-")
	from, err := netip.ParseAddr(strings.TrimSpace(first))
	to := from
	switch network, networkErr := netip.ParsePrefix(text); {
	case networkErr == nil && network.Masked() != network:
		return nil, "has bits set behind its mask: write " + network.Masked().String()
	case networkErr == nil:
		from, to = network.Addr(), lastOf(network)
	case isRange:
		if to, err = netip.ParseAddr(strings.TrimSpace(last)); err != nil {
			return nil, wanted
		}
		fallthrough
	default:
		if err != nil || !from.IsValid() {
			return nil, wanted
		}
	}
	switch {
	case from.Zone() != "" || to.Zone() != "" || from.Is4In6() || to.Is4In6():
		return nil, wanted
	case from.BitLen() != to.BitLen() || to.Less(from):
		return nil, "must go from a lower address to a higher one of the same family"
	}
	for a := from; ; a = a.Next() {
		if len(all) == maxPoolAddresses {
			return nil, fmt.Sprintf("has more than %d addresses", maxPoolAddresses)
		}
		if all = append(all, a); a == to {
			return all, ""
		}
	}
}

func lastOf(network netip.Prefix) netip.Addr {
	bytes := network.Addr().AsSlice()
	for i := network.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

func (d *document) validateAddressPool(path string, e *Entry, p *AddressPool) {
	seen := map[string]string{}
	for i, name := range p.Hosts {
		at := item(path+".hosts", i)
		d.unique(seen, at, name)
		if _, ok := e.Host(name); !ok {
			d.failf(at, "is no host of this entry; it has: %s", listed(e.HostNames()))
		}
	}
	if !d.needs(path + ".network") {
		return
	}
	network, err := netip.ParsePrefix(p.Network)
	switch {
	case err != nil || network.Addr().Is4In6():
		d.failf(path+".network", "must be a network in CIDR notation, such as 198.51.100.0/24")
		return
	case network.Masked() != network:
		d.failf(path+".network", "has bits set behind its mask: write %s", network.Masked())
		return
	}
	if !d.needs(path + ".gateway") {
		return
	}
	if a, err := netip.ParseAddr(p.Gateway); err != nil || !network.Contains(a) {
		d.failf(path+".gateway", "must be an address in %s", network)
	}
	if len(p.Nameservers) == 0 {
		d.failf(path+".nameservers", "needs at least one: the agents in the guests resolve the names of what clients ask for")
	}
	for i, text := range p.Nameservers {
		if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
			d.failf(item(path+".nameservers", i), "must be the address of a name server")
		}
	}
	d.validatePoolAddresses(path, p, network)
}

func (d *document) validatePoolAddresses(path string, p *AddressPool, network netip.Prefix) {
	total := 0
	for i, text := range p.Addresses {
		addresses, wrong := addressRange(text)
		switch outside := slices.IndexFunc(addresses, func(a netip.Addr) bool { return !network.Contains(a) }); {
		case wrong != "":
			d.failf(item(path+".addresses", i), "%s", wrong)
		case outside >= 0:
			d.failf(item(path+".addresses", i), "has %s, which is not in %s", addresses[outside], network)
		}
		total += len(addresses)
	}
	slots := p.slots()
	switch {
	case total > maxPoolAddresses:
		d.failf(path+".addresses", "has %d addresses: at most %d", total, maxPoolAddresses)
	case len(slots) == 0 && d.sound(path):
		d.failf(path+".addresses", "has no address that a guest could have")
	}
	has := map[netip.Addr]bool{}
	for _, slot := range slots {
		has[slot.Address.Addr()] = true
	}
	for text, mac := range p.MACs {
		at := child(path+".macs", text)
		if a, err := netip.ParseAddr(text); err != nil || !has[a] {
			d.failf(at, "is for no address of this pool")
		}
		if hardware, err := net.ParseMAC(mac); err != nil || len(hardware) != 6 || hardware[0]&1 != 0 || hardware[0] == 0xfe || len(mac) != 17 {
			d.failf(at, "must be the MAC of one NIC, such as 52:54:00:12:34:56, and not start with fe, which libvirt keeps for itself")
		}
	}
}

// validatePools refuses an address or a MAC that two guests could get.
func (d *document) validatePools(f *File) {
	addresses, macs := map[netip.Addr]string{}, map[string]string{}
	for i := range f.Entries {
		for j := range f.Entries[i].AddressPools {
			path := item(item("entries", i)+".addressPools", j)
			for _, slot := range f.Entries[i].AddressPools[j].slots() {
				a := slot.Address.Addr()
				if first, ok := addresses[a]; ok {
					d.failf(path+".addresses", "has %s, as %s has: each address is for one guest", a, first)
					break
				}
				addresses[a] = path
				if first, ok := macs[slot.MAC]; ok && slot.MAC != "" {
					d.failf(child(path+".macs", a.String()), "is the same as %s", first)
				}
				macs[slot.MAC] = child(path+".macs", a.String())
			}
		}
	}
}
