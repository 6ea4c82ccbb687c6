// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// entry is a file with one entry of a type.
func entry(lines ...string) string {
	return "version: 1\nreflectors:\n  - url: http://127.0.0.11:8910/\nentries:\n  - name: one\n    " + strings.Join(lines, "\n    ") + "\n"
}

func TestLocal(t *testing.T) {
	names := func(f *File) string { return strings.Join(f.Entries[0].HostNames(), " ") }
	t.Run("the default", func(t *testing.T) {
		f := parse(t, entry("type: local"))
		if got := names(f); !strings.HasPrefix(got, "outgoing 127.0.0.12 127.0.0.13 ") || !strings.HasSuffix(got, " 127.0.0.31") || len(f.Entries[0].Hosts) != 21 {
			t.Errorf("hosts: %s", got)
		}
		for _, x := range f.Entries[0].Exits() {
			if !x.Listen.IsLoopback() || x.Address.IsValid() && x.Listen != x.Address {
				t.Errorf("%+v", x)
			}
		}
	})
	t.Run("addresses, networks and interfaces", func(t *testing.T) {
		f := parse(t, entry("type: local", "addresses: [192.0.2.7, '2001:DB8::7', 198.51.100.4/30]", "interfaces: [wwan0, Eth_1]"))
		if got, want := names(f), "192.0.2.7 2001-db8--7 198.51.100.4 198.51.100.5 198.51.100.6 198.51.100.7 wwan0 eth-1"; got != want {
			t.Errorf("hosts: %s, want %s", got, want)
		}
		exits := f.Entries[0].Exits()
		if exits[0].Listen != netip.MustParseAddr("127.0.2.7") {
			t.Errorf("192.0.2.7 listens on %s", exits[0].Listen)
		}
		if v6 := exits[1]; !v6.Listen.IsLoopback() || v6.Address != netip.MustParseAddr("2001:db8::7") {
			t.Errorf("%+v", v6)
		}
		if last := exits[len(exits)-1]; last.Interface != "Eth_1" || last.Address.IsValid() {
			t.Errorf("%+v", last)
		}
	})
	t.Run("each listens where it sends from", func(t *testing.T) {
		for _, x := range parse(t, entry("type: local", "listen: exit", "addresses: [192.0.2.7, 127.0.0.12]")).Entries[0].Exits() {
			if x.Listen.IsValid() != x.Address.IsLoopback() {
				t.Errorf("%+v", x)
			}
		}
	})
	for name, c := range map[string]struct{ lines, path, want string }{
		"a key of another type":          {"type: local\n    hosts: []", "entries[0].hosts", "belongs to entries of type kvm2 or simulated"},
		"an address that is none":        {"type: local\n    addresses: [eth0]", "entries[0].addresses[0]", "the word outgoing"},
		"all addresses":                  {"type: local\n    addresses: [0.0.0.0]", "entries[0].addresses[0]", "can send to others"},
		"a zone":                         {"type: local\n    addresses: ['fe80::1%eth0']", "entries[0].addresses[0]", "must be an address"},
		"host bits":                      {"type: local\n    addresses: [192.0.2.1/30]", "entries[0].addresses[0]", "write 192.0.2.0/30"},
		"a network that is too large":    {"type: local\n    addresses: [10.0.0.0/16]", "entries[0].addresses[0]", "at most 256"},
		"no address":                     {"type: local\n    addresses: []", "entries[0].addresses", "empty list"},
		"an address twice":               {"type: local\n    addresses: [192.0.2.1, 192.0.2.0/30]", "entries[0]", "has the exit 192.0.2.1 twice"},
		"two that would listen together": {"type: local\n    addresses: [192.0.2.1, 10.0.2.1]", "entries[0]", "would both listen on 127.0.2.1"},
		"an interface that cannot be":    {"type: local\n    interfaces: [a/b]", "entries[0].interfaces[0]", "network interface"},
		"an interface with a long name":  {"type: local\n    interfaces: [abcdefghijklmnop]", "entries[0].interfaces[0]", "at most 15 bytes"},
		"a word for listen":              {"type: local\n    listen: lan", "entries[0].listen", "loopback or exit"},
	} {
		t.Run(name, func(t *testing.T) { refusedOnce(t, entry(c.lines), c.path, c.want) })
	}
}

func TestTwoEntriesWithOneExit(t *testing.T) {
	text := entry("type: local", "addresses: [192.0.2.1]") + "  - {name: two, type: local, addresses: [192.0.2.0/30]}\n"
	refusedOnce(t, text, "entries[1]", "has the exit 192.0.2.1, as entries[0] has")
}

func TestSimulated(t *testing.T) {
	t.Run("defaults", func(t *testing.T) {
		f := parse(t, entry("type: simulated", "hosts: [{name: a, addresses: 127.20.1.0/24}]"))
		if h := f.Entries[0].Hosts[0]; h.Capacity != DefaultCapacity || h.BootTime != DefaultBootTime || !h.IsSchedulable() {
			t.Errorf("%+v", h)
		}
		if f.Entries[0].Defaults.MemoryMiB != DefaultMemoryMiB {
			t.Errorf("%+v", f.Entries[0].Defaults)
		}
	})
	t.Run("everything", func(t *testing.T) {
		fault := FaultNames()[0]
		f := parse(t, entry("type: simulated", "socket: /run/sim.sock", "faults: [{fault: "+fault+", proxies: 'shop-*'}]",
			"hosts: [{name: a, addresses: 127.20.1.0/24, capacity: 3, bootTime: 0s, faults: ["+fault+"], schedulable: false}]"))
		e := f.Entries[0]
		if h := e.Hosts[0]; h.Capacity != 3 || h.BootTime != 0 || !slices.Equal(h.Faults, []string{fault}) || h.IsSchedulable() {
			t.Errorf("%+v", h)
		}
		if e.Socket != "/run/sim.sock" || e.Faults[0] != (Fault{fault, "shop-*"}) {
			t.Errorf("%+v", e)
		}
	})
	const host = "type: simulated\n    hosts: [{name: a, addresses: 127.20.1.0/24"
	for name, c := range map[string]struct{ lines, path, want string }{
		"no host":                 {"type: simulated", "entries[0].hosts", "at least one host"},
		"no addresses":            {"type: simulated\n    hosts: [{name: a}]", "entries[0].hosts[0].addresses", "is missing"},
		"not loopback":            {"type: simulated\n    hosts: [{name: a, addresses: 10.0.0.0/24}]", "entries[0].hosts[0].addresses", "inside 127.0.0.0/8"},
		"more than loopback":      {"type: simulated\n    hosts: [{name: a, addresses: 126.0.0.0/7}]", "entries[0].hosts[0].addresses", "inside 127.0.0.0/8"},
		"too large":               {"type: simulated\n    hosts: [{name: a, addresses: 127.0.0.0/8}]", "entries[0].hosts[0].addresses", "must be a /16 to /32"},
		"no capacity":             {host + ", capacity: 0}]", "entries[0].hosts[0].capacity", "must be 1 to"},
		"a negative boot time":    {host + ", bootTime: -1s}]", "entries[0].hosts[0].bootTime", "must be 0s to"},
		"an unknown fault":        {host + ", faults: [boot-fail]}]", "entries[0].hosts[0].faults[0]", `did you mean "boot-fails"?`},
		"a key of another type":   {host + ", bridge: br0}]", "entries[0].hosts[0].bridge", "belongs to entries of type kvm2"},
		"a broken pattern":        {host + "}]\n    faults: [{fault: boot-fails, proxies: '['}]", "entries[0].faults[0].proxies", "pattern"},
		"a fault without a name":  {host + "}]\n    faults: [{proxies: a}]", "entries[0].faults[0].fault", "is missing"},
		"a socket that is none":   {host + "}]\n    socket: sim.sock", "entries[0].socket", "absolute path"},
		"two hosts, one address":  {"type: simulated\n    hosts: [{name: a, addresses: 127.20.0.0/16}, {name: b, addresses: 127.20.1.0/24}]", "entries[0].hosts[1].addresses", "overlaps with 127.20.0.0/16"},
		"unknown keys know types": {host + ", bootime: 1s}]", "entries[0].hosts[0].bootime", "(known here: name, addresses, capacity, bootTime, faults, schedulable)"},
	} {
		t.Run(name, func(t *testing.T) { refusedOnce(t, entry(c.lines), c.path, c.want) })
	}
}
