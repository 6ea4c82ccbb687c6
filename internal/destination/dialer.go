// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Defaults of Dialer.
const (
	DefaultTimeout      = 15 * time.Second
	DefaultAttemptDelay = 250 * time.Millisecond
)

// maxAttempts bounds the addresses of one name that are tried.
const maxAttempts = 8

// Dialer connects to what its Policy lets it. Policy is required; the zero
// values of the rest are the system's.
type Dialer struct {
	Policy *Policy
	// Resolve returns a name's addresses, best first.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// DialAddr connects to an address.
	DialAddr func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	// OwnAddresses are the addresses of this machine.
	OwnAddresses func() ([]netip.Addr, error)
	// Timeout bounds a dial with its resolution and all attempts; 0 is
	// DefaultTimeout.
	Timeout time.Duration
	// AttemptDelay is how long an attempt is alone before the next address
	// is tried beside it; 0 is DefaultAttemptDelay.
	AttemptDelay time.Duration
}

// Dial connects to target, host:port. The error is a *RefusedError when the policy
// allows none of the host's addresses.
func (d *Dialer) Dial(ctx context.Context, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(d.Timeout, DefaultTimeout))
	defer cancel()
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("target %q: the port is not a number from 1 to 65535", target)
	}
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if !d.Policy.IsReflector(target) {
		if addrs, err = d.allowed(addrs); err != nil {
			return nil, err
		}
	}
	addrs = interleave(addrs)
	return d.race(ctx, addrs[:min(len(addrs), maxAttempts)], uint16(port))
}

// DialContext is Dial with the signature of net.Dialer's; network is "tcp".
func (d *Dialer) DialContext(ctx context.Context, network, target string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("network %q is not tcp", network)
	}
	return d.Dial(ctx, target)
}

func orDefault(value, fallback time.Duration) time.Duration {
	if value <= 0 {
		return fallback
	}
	return value
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	resolve := d.Resolve
	if resolve == nil {
		resolve = systemResolve
	}
	addrs, err := resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// allowed keeps what the policy allows; the first refusal stands for all when
// nothing is left.
func (d *Dialer) allowed(addrs []netip.Addr) ([]netip.Addr, error) {
	ownAddresses := d.OwnAddresses
	if ownAddresses == nil {
		ownAddresses = InterfaceAddresses
	}
	own, err := ownAddresses()
	if err != nil {
		// Closed, not open: an unknown address could be our own.
		return nil, fmt.Errorf("reading this machine's own addresses: %w", err)
	}
	var kept []netip.Addr
	var refusal error
	for _, addr := range addrs {
		if err := d.Policy.Check(addr, own); err == nil {
			kept = append(kept, addr.Unmap())
		} else if refusal == nil {
			refusal = err
		}
	}
	if len(kept) == 0 {
		return nil, refusal
	}
	return kept, nil
}

// InterfaceAddresses are the addresses of this machine's interfaces.
func InterfaceAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, item := range list {
		if prefix, err := netip.ParsePrefix(item.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs, nil
}

// interleave alternates between the families, beginning with that of the
// first address, so that a family without a route costs one attempt.
func interleave(addrs []netip.Addr) []netip.Addr {
	if len(addrs) == 0 {
		return nil
	}
	var first, second []netip.Addr
	for _, addr := range addrs {
		if addr.Unmap().Is4() == addrs[0].Unmap().Is4() {
			first = append(first, addr)
		} else {
			second = append(second, addr)
		}
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed
}
