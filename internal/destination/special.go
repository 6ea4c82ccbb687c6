// SPDX-License-Identifier: Apache-2.0

package destination

import "net/netip"

// network is a special-purpose network (IANA's registries) and why it is
// refused.
type network struct {
	prefix netip.Prefix
	why    string
}

func nets(why string, prefixes ...string) []network {
	list := make([]network, len(prefixes))
	for i, p := range prefixes {
		list[i] = network{netip.MustParsePrefix(p), why}
	}
	return list
}

func concat(lists ...[]network) (all []network) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// specials are searched in order: the first that matches says why.
var specials = concat(
	nets("a cloud's metadata service", "169.254.169.254/32", "fd00:ec2::254/128", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
	nets("unspecified", "0.0.0.0/8", "::/128"),
	nets("loopback", "127.0.0.0/8", "::1/128"),
	nets("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	nets("link-local", "169.254.0.0/16", "fe80::/10"),
	nets("shared by carriers (CGNAT)", "100.64.0.0/10"),
	nets("multicast", "224.0.0.0/4", "ff00::/8"),
	nets("for documentation or measurements", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "2001:db8::/32", "3fff::/20"),
	nets("reserved", "192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "2001::/23"),
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
)

// special says why addr is not of the public Internet; "" when it is. In
// IPv6 only what is allocated is public.
func special(addr netip.Addr) string {
	for _, n := range specials {
		if n.prefix.Contains(addr) {
			return n.why
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) && !nat64.Contains(addr) {
		return "not of the public Internet"
	}
	return ""
}

// embedded returns the IPv4 address to which a translator or relay takes an
// IPv6 address.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:16]))}
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:16]))}
	}
	return nil
}
