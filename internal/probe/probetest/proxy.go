// SPDX-License-Identifier: Apache-2.0

// Package probetest gives tests real proxies and reflectors on loopback addresses.
package probetest

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/mux"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
	"github.com/egress-proxies/egress-proxies-operator/internal/reflector"
)

// Proxy is a real proxy: HTTP, CONNECT and SOCKS5 on one port, with credentials, and traffic that leaves from its own address.
type Proxy struct {
	// Address is host:port.
	Address string

	credentials *agentapi.Credentials
	broken      atomic.Bool
	stop        func()

	mu       sync.Mutex
	upstream []net.Conn
}

// NewProxy serves on listen, an IP:port (port 0 chooses one), until Close or the end of the test.
func NewProxy(t testing.TB, listen, username, password string) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: listener.Addr().String(), credentials: agentapi.NewCredentials(time.Now)}
	p.SetCredentials(username, password)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: listener.Addr().(*net.TCPAddr).IP}}
	dial := func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
		if p.broken.Load() {
			return nil, &net.DNSError{Err: "egress is cut", Name: request.Target}
		}
		conn, err := dialer.DialContext(ctx, "tcp", request.Target)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.upstream = append(p.upstream, conn)
		}
		return conn, err
	}
	tunneler := &splice.Tunneler{IdleTimeout: time.Minute}
	m := mux.New(listener, mux.Config{})
	http := connect.NewServer(connect.Config{Auth: p.credentials, Dial: dial, Tunneler: tunneler})
	socks := socks5.NewServer(socks5.Config{Auth: p.credentials, Dial: dial, Tunneler: tunneler})
	var running sync.WaitGroup
	running.Go(func() { _ = m.Serve() })
	running.Go(func() { _ = http.Serve(m.HTTP()) })
	running.Go(func() { _ = socks.Serve(m.SOCKS5()) })
	p.stop = sync.OnceFunc(func() {
		_ = m.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = http.Shutdown(ended)
		_ = socks.Shutdown(ended)
		running.Wait()
		tunneler.Close()
	})
	t.Cleanup(p.stop)
	return p
}

// SetCredentials replaces the only credentials.
func (p *Proxy) SetCredentials(username, password string) {
	p.credentials.Replace([]agentapi.Credential{{Username: username, Password: password}})
}

// Accepts says whether a client with these credentials is served.
func (p *Proxy) Accepts(username, password string) bool {
	return p.credentials.Authenticate(username, password)
}

// Break makes the proxy reach nothing, or everything again.
func (p *Proxy) Break(broken bool) {
	p.broken.Store(broken)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.upstream {
		_ = conn.Close()
	}
	p.upstream = nil
}

// Close ends the proxy; its port is closed from then on.
func (p *Proxy) Close() { p.stop() }

// NewOpenProxy serves anybody, and returns its address.
func NewOpenProxy(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}})
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// NewReflector is a real reflector; its URL.
func NewReflector(t testing.TB) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(reflector.Handler(slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	return server
}

// NewSilence accepts nothing: an address that refuses connections.
func NewSilence(t testing.TB) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
