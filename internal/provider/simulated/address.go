// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// maxForeign bounds how many addresses are tried that somebody else listens on.
const maxForeign = 256

// takeAddress finds an address of the host for a new instance. The search begins where the instance's name says, so that one that is
// made anew has the same address again, as a rule.
func (w *World) takeAddress(c call, port int) (netip.Addr, error) {
	network := w.hosts[c.host].Addresses
	first, count := usable(network)
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(c.name))
	start, foreign := hash.Sum32()%count, 0
	for n := range count {
		address := addressAt(first + (start+n)%count)
		if _, taken := w.taken[address]; taken {
			continue
		}
		err := w.tryPort(address, port)
		if err == nil {
			return address, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return netip.Addr{}, cannotListen(c, address, port, err)
		}
		if foreign++; foreign >= maxForeign {
			break
		}
	}
	e := &provider.Error{
		Kind: provider.Capacity, Host: c.host, Object: objectOf(c.name), Message: fmt.Sprintf("no address of %s is free", network),
		Next: "delete Proxies, or give the host more addresses in the providers file",
	}
	if foreign > 0 {
		e.Message = fmt.Sprintf("no address of %s is free with port %d: %d are taken by other programs", network, port, foreign)
		e.Next = fmt.Sprintf("find who listens (ss -ltnp 'sport = :%d'), or set spec.port", port)
	}
	return netip.Addr{}, e
}

// tryPort opens a port and closes it again.
func (w *World) tryPort(address netip.Addr, port int) error {
	l, err := w.listen(address, port)
	if err != nil {
		return err
	}
	return l.Close()
}

func (w *World) listen(address netip.Addr, port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(w.ctx, "tcp4", net.JoinHostPort(address.String(), strconv.Itoa(port)))
}

// cannotListen says what is wrong with an address and a port that nobody has.
func cannotListen(c call, address netip.Addr, port int, err error) error {
	next := "see the error"
	switch {
	case errors.Is(err, syscall.EACCES):
		next = "set spec.port to 1024 or more: lower ones need privileges"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		next = "only Linux has all loopback addresses by itself; elsewhere add them (macOS: ifconfig lo0 alias " + address.String() + ")"
	}
	return &provider.Error{
		Kind: provider.Permanent, Host: c.host, Object: objectOf(c.name), Message: fmt.Sprintf("cannot listen on %s, port %d: %v", address, port, err), Next: next, Err: err,
	}
}

// usable are the addresses of a network that instances may have: without its first and last, where it has more than two.
func usable(network netip.Prefix) (first, count uint32) {
	bytes := network.Masked().Addr().As4()
	first, count = binary.BigEndian.Uint32(bytes[:]), uint32(1)<<(32-network.Bits())
	if count > 2 {
		return first + 1, count - 2
	}
	return first, count
}

func addressAt(n uint32) netip.Addr {
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], n)
	return netip.AddrFrom4(bytes)
}
