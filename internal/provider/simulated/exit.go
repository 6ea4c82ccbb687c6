// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/egress-proxies/egress-proxies-operator/internal/agent"
	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// WrongExit is where an instance with the fault wrong-exit sends from.
var WrongExit = netip.AddrFrom4([4]byte{127, 255, 255, 254})

// maxConnections bounds the clients of one instance.
const maxConnections = 1024

// exit is the open port of an instance.
type exit struct {
	behaviour
	// stop closes the port at once, and has the connections end.
	stop func()
}

// open opens the instance's port.
func (w *World) open(i *instance, b behaviour) (*exit, error) {
	listener, err := w.listen(i.address, i.shape.Port)
	if err != nil {
		return nil, err
	}
	if b.silent {
		ctx, stop := context.WithCancel(w.ctx)
		w.background.Go(func() { holdConnections(ctx, listener) })
		return &exit{behaviour: b, stop: func() { stop(); _ = listener.Close() }}, nil
	}
	if b.deaf {
		listener = deafListener{listener}
	}
	from := i.address
	if b.wrongExit {
		from = WrongExit
	}
	server, err := agent.New(agent.Config{
		Listener: listener, Key: i.controlKey, Credentials: i.credentials, Save: func(c []agentapi.Credential) error { return w.save(i, c) },
		Dial: w.dialer(from, b), Auth: authOf(b), Limits: agentapi.Limits{MaxConnections: maxConnections}, Version: w.version,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	w.background.Go(func() {
		// Ends by Close alone; an error of the listener is the end of its clients' patience, which probes show.
		_ = server.Run(w.ctx)
	})
	return &exit{behaviour: b, stop: server.Close}, nil
}

// save keeps new credentials for as long as the instance lives.
func (w *World) save(i *instance, credentials []agentapi.Credential) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i.credentials = credentials
	return nil
}

// authOf is who decides about clients: nil is the credentials.
func authOf(b behaviour) proxyproto.Authenticator {
	switch {
	case b.open:
		return openDoor{}
	case b.refuses:
		return proxyproto.AuthenticatorFunc(func(string, string) bool { return false })
	}
	return nil
}

// openDoor lets everybody in.
type openDoor struct{}

func (openDoor) Authenticate(string, string) bool { return true }
func (openDoor) LetsAnonymousIn() bool            { return true }

// unreachableError is a destination that a simulated instance does not reach.
type unreachableError struct {
	failure proxyproto.Failure
	why     string
}

func (e *unreachableError) Error() string               { return e.why }
func (e *unreachableError) Failure() proxyproto.Failure { return e.failure }

// dialer connects from an address to loopback addresses: from there nothing else can be reached.
func (w *World) dialer(from netip.Addr, b behaviour) proxyproto.DialFunc {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
		if b.noEgress {
			return nil, &unreachableError{proxyproto.FailureNetworkUnreachable, "the instance has no way out (simulated fault no-egress)"}
		}
		if b.slow && !sleep(ctx, w.ctx.Done(), w.clock, slowProxyTime) {
			return nil, errors.Join(ctx.Err(), w.ctx.Err())
		}
		target, err := loopbackTarget(ctx, request.Target)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, "tcp4", target)
	}
}

// loopbackTarget resolves a target to an IPv4 loopback address.
func loopbackTarget(ctx context.Context, target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() && a.IsLoopback() {
			return net.JoinHostPort(a.String(), port), nil
		}
	}
	return "", &unreachableError{proxyproto.FailureLoopbackOnly, "a simulated instance reaches IPv4 loopback addresses only"}
}

// holdConnections takes connections and answers nothing, until ctx ends.
func holdConnections(ctx context.Context, listener net.Listener) {
	var held sync.WaitGroup
	defer held.Wait()
	defer func() { _ = listener.Close() }()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		held.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(io.Discard, conn)
		})
	}
}

// deafListener closes connections that begin with a TLS handshake: those of the control channel.
type deafListener struct{ net.Listener }

func (l deafListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &deafConn{Conn: conn}, nil
}

// deafConn ends at once where its first byte begins a TLS handshake.
type deafConn struct {
	net.Conn
	heard bool
}

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard {
		c.heard = true
		if p[0] == tlsHandshake {
			return 0, io.EOF
		}
	}
	return n, err
}

// CloseWrite passes a half-close on.
func (c *deafConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
