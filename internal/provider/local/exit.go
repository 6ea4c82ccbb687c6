// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// exit connects to destinations from one address or interface, and from nowhere else.
type exit struct {
	config.Exit
	machine machine
	dialer  *destination.Dialer
	// doubt is called when a connection failed as if the exit were gone.
	doubt func()

	// looking is held from look to taking over what it found: no older look may win over a newer one.
	looking sync.Mutex

	mu    sync.Mutex
	is    presence
	conns map[*tracked]struct{}
}

// rules of an entry, for one of its exits: only loopback exits reach loopback by themselves.
func rules(x config.Exit, allow []netip.Prefix, reflectors []string) destination.Rules {
	r := destination.Rules{Allow: allow, Reflectors: reflectors}
	if x.Address.IsLoopback() {
		r.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return r
}

func newExit(x config.Exit, m machine, policy *destination.Policy, timeout time.Duration, doubt func()) *exit {
	e := &exit{Exit: x, machine: m, doubt: doubt, conns: map[*tracked]struct{}{}}
	e.dialer = &destination.Dialer{
		Policy: policy, Timeout: timeout, OwnAddresses: m.addresses, Resolve: e.resolve, DialAddr: e.dialAddr,
	}
	return e
}

// presence is what the last look found.
func (e *exit) presence() presence {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.is
}

// refresh looks again, and ends the connections from what the exit is no more. What was known stands where the machine cannot be read.
func (e *exit) refresh() presence {
	e.looking.Lock()
	defer e.looking.Unlock()
	is, err := look(e.machine, e.Exit)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil && e.is != presence{}:
		return e.is
	case err != nil:
		is = unreadable(err)
	}
	e.is = is
	for c := range e.conns {
		if !is.has(c.from) {
			delete(e.conns, c)
			_ = c.Conn.Close()
		}
	}
	return is
}

// exitError is a request that the exit itself cannot carry out.
type exitError struct {
	failure proxyproto.Failure
	text    string
}

func (e *exitError) Error() string               { return e.text }
func (e *exitError) Failure() proxyproto.Failure { return e.failure }

func gone(p problem) error { return &exitError{proxyproto.FailureExitGone, p.message} }

func loopbackOnly(why string) error { return &exitError{proxyproto.FailureLoopbackOnly, why} }

// Dial is the exit's proxyproto.DialFunc.
func (e *exit) Dial(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
	if p := e.presence().problem; p.exists() {
		return nil, gone(p)
	}
	conn, err := e.dialer.Dial(ctx, request.Target)
	var refused *destination.RefusedError
	if errors.As(err, &refused) && e.Address.IsLoopback() {
		return nil, loopbackOnly(refused.Error())
	}
	return conn, err
}

// dialAddr connects from the exit's own address, bound before anything is sent: where that fails, there is no connection.
func (e *exit) dialAddr(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
	to := target.Addr().Unmap()
	from, err := e.source(to)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Control: binder(e.Interface)}
	conn, err := dialer.DialContext(ctx, "tcp", target.String())
	if err != nil {
		return nil, e.explain(err)
	}
	return e.track(conn, from)
}

// source is the address to send from to a target.
func (e *exit) source(to netip.Addr) (netip.Addr, error) {
	is := e.presence()
	if e.Outgoing {
		is = e.refresh() // the default route may have changed since the last look
	}
	switch from := is.from(to); {
	case is.problem.exists():
		return netip.Addr{}, gone(is.problem)
	case e.Address.IsLoopback() && !to.IsLoopback():
		return netip.Addr{}, loopbackOnly(fmt.Sprintf("%s is not reached from the loopback address %s", to, e.Address))
	case e.Interface != "" && to.IsLoopback():
		return netip.Addr{}, fmt.Errorf("loopback is not reached through interface %s: %w", e.Interface, syscall.ENETUNREACH)
	case !from.IsValid():
		return netip.Addr{}, fmt.Errorf("exit %s has no address of the family of %s: %w", e.Name, to, syscall.ENETUNREACH)
	default:
		return from, nil
	}
}

// explain tells a socket that could not be bound from a destination that cannot be reached.
func (e *exit) explain(err error) error {
	var call *os.SyscallError
	var refused *bindError
	if errors.As(err, &refused) || errors.As(err, &call) && call.Syscall == "bind" && errors.Is(call.Err, syscall.EADDRNOTAVAIL) {
		e.doubt()
		return &exitError{proxyproto.FailureExitGone, err.Error()}
	}
	return err
}

// track keeps a connection for as long as the exit has the address that it comes from.
func (e *exit) track(conn net.Conn, from netip.Addr) (net.Conn, error) {
	c := &tracked{Conn: conn, from: from, exit: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if addressOf(conn.LocalAddr()) != from || !e.is.has(from) {
		_ = conn.Close()
		return nil, gone(problem{message: fmt.Sprintf("exit %s is not %s any more", e.Name, from)})
	}
	e.conns[c] = struct{}{}
	return c, nil
}

// tracked is a connection that ends with the address that it comes from.
type tracked struct {
	net.Conn
	from netip.Addr
	exit *exit
}

// Unwrap lets a tunnel splice the connection itself.
func (c *tracked) Unwrap() (net.Conn, []byte) { return c.Conn, nil }

// CloseWrite half-closes.
func (c *tracked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close closes the connection.
func (c *tracked) Close() error {
	c.exit.mu.Lock()
	delete(c.exit.conns, c)
	c.exit.mu.Unlock()
	return c.Conn.Close()
}
