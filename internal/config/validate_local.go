// SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

const (
	// maxExits of a local entry.
	maxExits = 1024
	// maxNetworkBits are the bits behind the mask of a network of exits.
	maxNetworkBits = 8
)

// validateLocal checks a local entry, and gives it its hosts.
func (d *document) validateLocal(path string, e *Entry) {
	d.oneOf(path+".listen", e.Listen, ListenLoopback, ListenExit)
	if d.has(path+".addresses") && len(e.Addresses) == 0 {
		d.failf(path+".addresses", "is an empty list: name an address, or leave the key out")
	}
	for i, text := range e.Addresses {
		at := item(path+".addresses", i)
		if text == Outgoing {
			continue
		}
		normal, wrong := exitNetwork(text)
		if wrong != "" {
			d.failf(at, "%s", wrong)
		}
		e.Addresses[i] = normal
	}
	for i, name := range e.Interfaces {
		d.validateInterface(item(path+".interfaces", i), name)
	}
	if d.sound(path+".addresses") && d.sound(path+".interfaces") {
		d.validateExits(path, e)
	}
}

// exitNetwork is an address, or a network of addresses to send from, in its normal form, or what is wrong with it.
func exitNetwork(text string) (normal, wrong string) {
	network, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil {
		address = address.Unmap()
		network, err = netip.PrefixFrom(address, address.BitLen()), nil
		normal = address.String()
	} else {
		normal = network.String()
	}
	a := network.Addr()
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return text, "must be an address, a network such as 198.51.100.0/28, or the word outgoing"
	case a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return text, "must be an address that can send to others: not 0.0.0.0 or ::, and neither link-local nor multicast"
	case network.Masked() != network:
		return text, "has bits set behind its mask: write " + network.Masked().String()
	case a.BitLen()-network.Bits() > maxNetworkBits:
		return text, "must have at most 256 addresses: each is an exit of its own"
	}
	return normal, ""
}

// validateExits finds exits that are there twice, or that would listen in one place, and makes each a host.
func (d *document) validateExits(path string, e *Entry) {
	exits := e.Exits()
	if len(exits) > maxExits {
		d.failf(path, "has %d exits: at most %d, share them among several entries", len(exits), maxExits)
		return
	}
	names, listen := map[string]bool{}, map[netip.Addr]string{}
	e.Hosts = make([]Host, 0, len(exits))
	for _, x := range exits {
		switch other, taken := listen[x.Listen]; {
		case names[x.Name]:
			d.failf(path, "has the exit %s twice: each address and interface is an exit once", x.Name)
			return
		case !hostKey.MatchString(x.Name):
			d.failf(path+".interfaces", "has %s, which cannot be the name of a host: rename the interface", shown(x.Interface))
			return
		case taken && x.Listen.IsValid():
			d.failf(path, "has the exits %s and %s, which would both listen on %s: set listen: exit, or put one of them into another entry", other, x.Name, x.Listen)
			return
		}
		names[x.Name] = true
		listen[x.Listen] = x.Name
		e.Hosts = append(e.Hosts, Host{Name: x.Name, Schedulable: new(true)})
	}
}

// block is the network of one simulated host.
type block struct {
	network netip.Prefix
	at      string
}

// validatePlaces refuses exits and loopback addresses that two entries would use.
func (d *document) validatePlaces(f *File) {
	exits := map[string]string{}
	var blocks []block
	for i := range f.Entries {
		e, at := &f.Entries[i], item("entries", i)
		switch e.Type {
		case TypeLocal:
			d.uniqueExits(at, e, exits)
		case TypeSimulated:
			blocks = d.disjoint(at, e, blocks)
		}
	}
}

// uniqueExits reports an exit that another entry has; exits is from the exit to the entry.
func (d *document) uniqueExits(at string, e *Entry, exits map[string]string) {
	for _, h := range e.Hosts {
		if first, ok := exits[h.Name]; ok {
			d.failf(at, "has the exit %s, as %s has: each address and interface is the exit of one entry", h.Name, first)
			return
		}
		exits[h.Name] = at
	}
}

// disjoint reports networks that overlap with those before, and returns all.
func (d *document) disjoint(at string, e *Entry, blocks []block) []block {
	for i, h := range e.Hosts {
		network, err := netip.ParsePrefix(h.Addresses)
		if err != nil {
			continue
		}
		here := item(at+".hosts", i) + ".addresses"
		for _, b := range blocks {
			if b.network.Overlaps(network) {
				d.failf(here, "overlaps with %s (%s): no two hosts share addresses", b.network, b.at)
				break
			}
		}
		blocks = append(blocks, block{network, here})
	}
	return blocks
}
