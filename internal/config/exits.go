// SPDX-License-Identifier: Apache-2.0

package config

import (
	"hash/fnv"
	"iter"
	"net/netip"
	"strconv"
	"strings"
)

// Where the proxies of a local entry listen.
const (
	// ListenLoopback: on a loopback address of each exit's own, which only this machine reaches.
	ListenLoopback = "loopback"
	// ListenExit: on the address that the exit sends from.
	ListenExit = "exit"
)

// Outgoing is the word for the address that the machine's default route uses at the time, and the name of its exit.
const Outgoing = "outgoing"

// The loopback exits of a local entry that names none.
const (
	firstLoopback = 12
	lastLoopback  = 31
)

// Exit is one way out of this machine: a host of a local entry, with room for one instance.
type Exit struct {
	// Name is that of the entry's host: the address, outgoing, or the interface, in lower case and with "-" for what a name may not have.
	Name string
	// Address to send from; not valid for Outgoing and for an interface.
	Address netip.Addr
	// Interface to send through, whatever its address is.
	Interface string
	// Outgoing exits send from the address that the default route uses at the time.
	Outgoing bool
	// Listen is where the proxy listens; not valid where that is the address that the exit sends from.
	Listen netip.Addr
}

// Exits are the exits of a loaded local entry, in the order of its hosts.
func (e *Entry) Exits() []Exit {
	var exits []Exit
	for _, a := range e.exitAddresses() {
		if a == Outgoing {
			exits = append(exits, Exit{Name: Outgoing, Outgoing: true})
			continue
		}
		for address := range networkOf(a) {
			exits = append(exits, Exit{Name: exitName(address.String()), Address: address})
		}
	}
	for _, name := range e.Interfaces {
		exits = append(exits, Exit{Name: exitName(name), Interface: name})
	}
	for i := range exits {
		exits[i].Listen = exits[i].listen(e.Listen)
	}
	return exits
}

// exitAddresses are Addresses, or their default.
func (e *Entry) exitAddresses() []string {
	if len(e.Addresses) > 0 || len(e.Interfaces) > 0 {
		return e.Addresses
	}
	all := []string{Outgoing}
	for i := firstLoopback; i <= lastLoopback; i++ {
		all = append(all, "127.0.0."+strconv.Itoa(i))
	}
	return all
}

// networkOf are the addresses that one item of Addresses stands for; none where it may not be.
func networkOf(text string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if address, err := netip.ParseAddr(text); err == nil {
			yield(address)
			return
		}
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().BitLen()-network.Bits() > maxNetworkBits {
			return
		}
		for a := network.Masked().Addr(); network.Contains(a) && yield(a); a = a.Next() {
		}
	}
}

// exitName makes an address or an interface the name of a host.
func exitName(text string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	return strings.Trim(name, ".-")
}

// listen is the loopback address of an exit's own. That of an IPv4 address a.b.c.d is 127.b.c.d, so that people know it; the others lie in
// 127.64.0.0/10, by their name.
func (x Exit) listen(where string) netip.Addr {
	switch {
	case x.Address.IsLoopback():
		return x.Address
	case where == ListenExit:
		return netip.Addr{}
	case x.Address.Is4():
		b := x.Address.As4()
		b[0] = 127
		return netip.AddrFrom4(b)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(x.Name))
	n := hash.Sum32()
	return netip.AddrFrom4([4]byte{127, 64 | byte(n>>16)&63, byte(n >> 8), byte(n)})
}
