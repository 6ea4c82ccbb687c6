// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pools is the minimal file with two hosts, and these pools in its entry.
func pools(t *testing.T, items string) string {
	return strings.Replace(guests(t, "    addressPools:\n"+items), "    credentials:\n", "      - name: b\n        address: b.example.org\n        bridge: br0\n    credentials:\n", 1)
}

const pool = `      - network: 198.51.100.0/24
        gateway: 198.51.100.1
        nameservers: [198.51.100.53, 2001:db8::53]
        addresses: [198.51.100.0/30, 198.51.100.10-198.51.100.11, 198.51.100.20]
        macs: {198.51.100.20: 52:54:00:AB:CD:EF}
`

func TestAddressPools(t *testing.T) {
	text := pools(t, pool+`      - hosts: [b]
        network: 2001:db8::/64
        gateway: 2001:db8::1
        nameservers: [2001:db8::53]
        addresses: ["2001:db8::-2001:db8::2"]
`)
	e := parse(t, text).Entries[0]
	slots := func(host string) (all []string) {
		for _, s := range e.Slots(host) {
			all = append(all, strings.TrimSpace(fmt.Sprint(s.Address, " ", s.Gateway, " ", s.MAC)))
		}
		return all
	}
	v4 := []string{
		"198.51.100.2/24 198.51.100.1", "198.51.100.3/24 198.51.100.1", "198.51.100.10/24 198.51.100.1", "198.51.100.11/24 198.51.100.1",
		"198.51.100.20/24 198.51.100.1 52:54:00:ab:cd:ef",
	}
	if diff := cmp.Diff(v4, slots("a")); diff != "" {
		t.Errorf("host a, of which the network's and the gateway's addresses are left out: %s", diff)
	}
	if diff := cmp.Diff(append(v4, "2001:db8::2/64 2001:db8::1"), slots("b")); diff != "" {
		t.Errorf("host b: %s", diff)
	}
	if n := e.Slots("a")[0].Nameservers; len(n) != 2 {
		t.Errorf("name servers: %v", n)
	}
}

func TestAddressPoolsRefused(t *testing.T) {
	replace := func(old, replacement string) string {
		if !strings.Contains(pool, old) {
			t.Fatalf("%q is not in the pool", old)
		}
		return pools(t, strings.Replace(pool, old, replacement, 1))
	}
	const at = "entries[0].addressPools[0]"
	for name, test := range map[string]struct{ text, path, says string }{
		"unknown host":              {replace("      - network", "      - hosts: [c]\n        network"), at + ".hosts[0]", "it has: \"a\", \"b\""},
		"no network":                {replace("network: 198.51.100.0/24", "hosts: [a]"), at + ".network", "is missing"},
		"network with host bits":    {replace("198.51.100.0/24", "198.51.100.7/24"), at + ".network", "write 198.51.100.0/24"},
		"no gateway":                {replace("        gateway: 198.51.100.1\n", ""), at + ".gateway", "is missing"},
		"gateway elsewhere":         {replace("gateway: 198.51.100.1", "gateway: 192.0.2.1"), at + ".gateway", "must be an address in 198.51.100.0/24"},
		"no name server":            {replace("        nameservers: [198.51.100.53, 2001:db8::53]\n", ""), at + ".nameservers", "needs at least one"},
		"name server by name":       {replace("2001:db8::53", "dns.example"), at + ".nameservers[1]", "address of a name server"},
		"address elsewhere":         {replace("198.51.100.10-198.51.100.11", "192.0.2.7"), at + ".addresses[1]", "has 192.0.2.7, which is not in"},
		"address that is none":      {replace("198.51.100.10-198.51.100.11", "everything"), at + ".addresses[1]", "must be an address, a range"},
		"range backwards":           {replace("198.51.100.10-198.51.100.11", "198.51.100.11-198.51.100.10"), at + ".addresses[1]", "from a lower address to a higher"},
		"range of two families":     {replace("198.51.100.10-198.51.100.11", "\"198.51.100.10-2001:db8::1\""), at + ".addresses[1]", "the same family"},
		"range without end":         {replace("198.51.100.10-198.51.100.11", "198.51.100.10-"), at + ".addresses[1]", "must be an address, a range"},
		"network without end":       {replace("198.51.100.10-198.51.100.11", "\"::/0\""), at + ".addresses[1]", "more than 4096"},
		"MAC for no address":        {replace("198.51.100.20: 52", "198.51.100.21: 52"), at + `.macs["198.51.100.21"]`, "no address of this pool"},
		"MAC that is none":          {replace("52:54:00:AB:CD:EF", "52:54:00:AB:CD"), at + `.macs["198.51.100.20"]`, "must be the MAC of one NIC"},
		"multicast MAC":             {replace("52:54:00:AB:CD:EF", "53:54:00:AB:CD:EF"), at + `.macs["198.51.100.20"]`, "must be the MAC of one NIC"},
		"MAC that libvirt keeps":    {replace("52:54:00:AB:CD:EF", "fe:54:00:AB:CD:EF"), at + `.macs["198.51.100.20"]`, "must be the MAC of one NIC"},
		"one MAC for two addresses": {replace("{198.51.100.20: 52:54:00:AB:CD:EF}", "{198.51.100.20: 52:54:00:AB:CD:EF, 198.51.100.11: 52:54:00:ab:cd:ef}"), at + `.macs["198.51.100.20"]`, "is the same as"},
		"an address twice":          {pools(t, pool+strings.ReplaceAll(pool, "198.51.100.0/30, ", "")), "entries[0].addressPools[1].addresses", "each address is for one guest"},
		"nothing is left":           {replace("[198.51.100.0/30, 198.51.100.10-198.51.100.11, 198.51.100.20]\n        macs: {198.51.100.20: 52:54:00:AB:CD:EF}", "[198.51.100.1]"), at + ".addresses", "no address that a guest could have"},
	} {
		t.Run(name, func(t *testing.T) { refusedOnce(t, test.text, test.path, test.says) })
	}
}
