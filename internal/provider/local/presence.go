// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// presence is what there is of an exit at one time: the addresses to send from, at most one of each family, or why there are none.
type presence struct {
	v4, v6  netip.Addr
	problem problem
}

// problem is why an exit cannot be used now; none where reason is empty.
type problem struct {
	// reason is a word of ProviderHealth.
	reason string
	// message says what is wrong, and next what to do.
	message, next string
}

func (p problem) exists() bool { return p.reason != "" }

func (p problem) String() string { return p.message + "; " + p.next }

// from is the address to send from to a target; not valid where the exit has none of its family.
func (p presence) from(target netip.Addr) netip.Addr {
	if target.Unmap().Is4() {
		return p.v4
	}
	return p.v6
}

// has says whether the exit sends from an address.
func (p presence) has(a netip.Addr) bool {
	return !p.problem.exists() && a.IsValid() && (a == p.v4 || a == p.v6)
}

// preferred is the address that a listener takes where it listens on the exit's own.
func (p presence) preferred() netip.Addr {
	if p.v4.IsValid() {
		return p.v4
	}
	return p.v6
}

func present(addresses ...netip.Addr) presence {
	var p presence
	for _, a := range addresses {
		switch {
		case a.Is4():
			p.v4 = a
		case a.Is6():
			p.v6 = a
		}
	}
	return p
}

func absent(reason, message, next string) presence {
	return presence{problem: problem{reason, message, next}}
}

// The addresses for documentation, to which nobody sends: the route to them is the default route.
var (
	somewhere4 = netip.MustParseAddr("192.0.2.1")
	somewhere6 = netip.MustParseAddr("2001:db8::1")
)

// byItself says of every exit that is not there how it comes back.
const byItself = "it serves again by itself"

// look finds out what there is of an exit. It sends nothing. An error says nothing about the exit.
func look(m machine, exit config.Exit) (presence, error) {
	switch {
	case exit.Outgoing:
		return lookOutgoing(m)
	case exit.Interface != "":
		return lookInterface(m, exit.Interface)
	}
	return lookAddress(m, exit.Address)
}

func lookAddress(m machine, a netip.Addr) (presence, error) {
	// Whether a socket can be bound is not the whole answer: ip_nonlocal_bind lets it be bound to addresses of other machines.
	if !a.IsLoopback() {
		all, err := m.addresses()
		if err != nil {
			return presence{}, err
		}
		if !slices.Contains(all, a) {
			return absent(provider.HostUnreachable, fmt.Sprintf("address %s is on no interface of this machine", a), "bring it back, and "+byItself), nil
		}
	}
	err := m.canBind(a)
	switch {
	case err == nil:
		return present(a), nil
	case starved(err):
		return presence{}, err
	}
	return presence{problem: unbindable(a, err)}, nil
}

// unbindable is an address that no socket can be bound to.
func unbindable(a netip.Addr, err error) problem {
	next := "bring it back, and " + byItself
	if a.IsLoopback() && !loopbackIsWhole {
		next = fmt.Sprintf("add it (on macOS: sudo ifconfig lo0 alias %s up), and %s", a, byItself)
	}
	return problem{provider.HostUnreachable, fmt.Sprintf("address %s cannot be used on this machine: %s", a, cause(err)), next}
}

// sources are the addresses that this machine sends from to somewhere, one of each family, or why there is none.
func sources(m machine, name string) (v4, v6 netip.Addr, none error, err error) {
	v4, err4 := m.source(somewhere4, name)
	v6, err6 := m.source(somewhere6, name)
	switch {
	case starved(err4):
		return v4, v6, nil, err4
	case starved(err6):
		return v4, v6, nil, err6
	case err4 != nil && err6 != nil:
		return v4, v6, err4, nil
	}
	return v4, v6, nil, nil
}

func lookOutgoing(m machine) (presence, error) {
	v4, v6, none, err := sources(m, "")
	switch {
	case err != nil:
		return presence{}, err
	case none != nil:
		return absent(provider.HostUnreachable, "this machine has no default route: "+cause(none), "connect it to a network, and "+byItself), nil
	}
	return sendable(v4, v6, func(netip.Addr) bool { return true }, "the default route has no address that can send to others"), nil
}

func lookInterface(m machine, name string) (presence, error) {
	i, own, err := m.networkInterface(name)
	switch {
	case err != nil:
		return presence{}, err
	case i == nil:
		return absent(provider.HostUnreachable, fmt.Sprintf("interface %s is not there", name), "connect it, and "+byItself), nil
	case i.Flags&net.FlagLoopback != 0:
		return absent(provider.HostIncapable, fmt.Sprintf("interface %s is the loopback", name), "name addresses of 127.0.0.0/8 under addresses of the entry instead"), nil
	case i.Flags&net.FlagUp == 0:
		return absent(provider.HostUnreachable, fmt.Sprintf("interface %s is down", name), "bring it up, and "+byItself), nil
	}
	v4, v6, none, err := sources(m, name)
	var refused *bindError
	switch {
	case err != nil:
		return presence{}, err
	case errors.As(none, &refused) && !errors.Is(none, syscall.ENODEV):
		return absent(provider.HostIncapable, fmt.Sprintf("this system (%s) does not let the operator bind to interface %s: %s", runtime.GOOS, name, cause(refused.err)), interfaceNeeds), nil
	case none != nil:
		return absent(provider.HostUnreachable, fmt.Sprintf("interface %s leads nowhere: %s", name, cause(none)),
			"give it an address and a default route (of any metric), and "+byItself), nil
	}
	return sendable(v4, v6, func(a netip.Addr) bool { return slices.Contains(own, a) }, fmt.Sprintf("interface %s has no address of its own", name)), nil
}

// sendable keeps the addresses that can send to others, of those that the exit owns.
func sendable(v4, v6 netip.Addr, owns func(netip.Addr) bool, otherwise string) presence {
	var kept []netip.Addr
	for _, a := range []netip.Addr{v4, v6} {
		if a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && owns(a) {
			kept = append(kept, a)
		}
	}
	if len(kept) == 0 {
		return absent(provider.HostUnreachable, otherwise, "give it one, and "+byItself)
	}
	return present(kept...)
}

// unreadable is an exit that was never seen, on a machine that does not say what it has.
func unreadable(err error) presence {
	return absent(provider.HostDegraded, "the addresses of this machine cannot be read: "+cause(err), "see what the system lacks (open files?); it is tried again every few seconds")
}

// cause is the innermost error's text: addresses and ports of attempts change from one to the next, and would be a write each.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
