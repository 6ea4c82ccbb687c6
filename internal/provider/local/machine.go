// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
)

// machine is what exits need to know of the machine that they are on.
type machine interface {
	// addresses of all interfaces.
	addresses() ([]netip.Addr, error)
	// networkInterface is the interface of that name, and its addresses; nil where there is none.
	networkInterface(name string) (*net.Interface, []netip.Addr, error)
	// source is the address from which this machine sends to target now, through an interface where name is not empty. It sends nothing.
	source(target netip.Addr, name string) (netip.Addr, error)
	// canBind says whether sockets may be bound to an address.
	canBind(address netip.Addr) error
}

// thisMachine is the one that the process runs on.
type thisMachine struct{}

func (thisMachine) addresses() ([]netip.Addr, error) { return destination.InterfaceAddresses() }

func (thisMachine) networkInterface(name string) (*net.Interface, []netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(all, func(i net.Interface) bool { return i.Name == name })
	if at < 0 {
		return nil, nil, nil
	}
	i := &all[at]
	list, err := i.Addrs()
	if err != nil {
		return nil, nil, err
	}
	var addresses []netip.Addr
	for _, item := range list {
		if prefix, err := netip.ParsePrefix(item.String()); err == nil {
			addresses = append(addresses, prefix.Addr())
		}
	}
	return i, addresses, nil
}

// discardPort is where the UDP sockets that ask for a source are connected to.
const discardPort = 9

func (thisMachine) source(target netip.Addr, name string) (netip.Addr, error) {
	dialer := net.Dialer{Control: binder(name)}
	// Nothing here waits, and nobody's impatience must look like an exit that is gone.
	conn, err := dialer.DialContext(context.Background(), "udp", netip.AddrPortFrom(target, discardPort).String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return addressOf(conn.LocalAddr()), nil
}

func (thisMachine) canBind(address netip.Addr) error {
	conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// starved says whether a call failed for want of descriptors or memory: it says nothing about what there is.
func starved(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// bindError is a system that does not let a socket be bound to an interface.
type bindError struct {
	name string
	err  error
}

func (e *bindError) Error() string {
	return fmt.Sprintf("a connection cannot be bound to interface %s: %v", e.name, e.err)
}

func (e *bindError) Unwrap() error { return e.err }

// binder prepares a socket to leave by an interface, or by any where name is empty.
func binder(name string) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			shareSourcePorts(fd)
			if name != "" {
				failed = bindToInterface(fd, network, name)
			}
		})
		if err == nil && failed != nil {
			return &bindError{name, failed}
		}
		return err
	}
}

// addressOf is the IP address of a TCP or UDP address, in its plain form; not valid where it is none.
func addressOf(a net.Addr) netip.Addr {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return ap.Addr().Unmap()
}
