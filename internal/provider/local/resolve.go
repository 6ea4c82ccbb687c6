// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// resolve finds a name's addresses, of the families that the exit has, by the machine's name servers. They are asked through the exit;
// one on loopback is this machine's own, and is asked directly.
func (e *exit) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	network := "ip"
	switch is := e.presence(); {
	case is.problem.exists():
		return nil, gone(is.problem)
	case !is.v6.IsValid():
		network = "ip4"
	case !is.v4.IsValid():
		network = "ip6"
	}
	// Go's own: the system's cannot be told from where to ask.
	resolver := net.Resolver{PreferGo: true, Dial: e.dialNameServer}
	addresses, err := resolver.LookupNetIP(ctx, network, host)
	if err != nil && e.Address.IsLoopback() && ctx.Err() == nil {
		// Most name servers are beyond its reach, and so is what they know.
		return nil, loopbackOnly(fmt.Sprintf("the name is not one of this machine: %v", err))
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	return addresses, err
}

func (e *exit) dialNameServer(ctx context.Context, network, address string) (net.Conn, error) {
	server, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	to := server.Addr().Unmap()
	if to.IsLoopback() {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	from, err := e.source(to)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Control: binder(e.Interface), LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	if network[:3] == "tcp" {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return dialer.DialContext(ctx, network, address)
}
