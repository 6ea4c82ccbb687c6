// SPDX-License-Identifier: Apache-2.0

// Package proxyproto holds what the proxy protocols share: who may use the
// proxy, how a destination is dialled, and how a failure to dial is named in
// each protocol. The protocols themselves are the packages below it.
//
// Nothing here, or below, knows of Kubernetes, of libvirt or of any global: a
// server is given an Authenticator, a DialFunc and a Logf, and nothing else.
package proxyproto

import (
	"context"
	"net"
)

// Protocols as they stand in Request.Protocol.
const (
	ProtocolConnect = "connect"
	ProtocolHTTP    = "http"
	ProtocolSOCKS5  = "socks5"
)

// MaxCredentialLength is the longest username or password in bytes: SOCKS5
// (RFC 1929) gives each one octet of length.
const MaxCredentialLength = 255

// Authenticator decides whether a client may use the proxy. It is called
// from many goroutines at once and must compare in constant time.
type Authenticator interface {
	Authenticate(username, password string) bool
}

// AuthenticatorFunc is a function as an Authenticator.
type AuthenticatorFunc func(username, password string) bool

// Authenticate calls f.
func (f AuthenticatorFunc) Authenticate(username, password string) bool { return f(username, password) }

// LetsAnonymousIn says whether auth also lets clients in that present no
// credentials at all: only an Authenticator with a method LetsAnonymousIn that
// returns true does, which none outside of simulations has.
func LetsAnonymousIn(auth Authenticator) bool {
	open, ok := auth.(interface{ LetsAnonymousIn() bool })
	return ok && open.LetsAnonymousIn()
}

// Request is what an authenticated client asked for.
type Request struct {
	// Protocol is ProtocolConnect, ProtocolHTTP or ProtocolSOCKS5.
	Protocol string
	// Username is the one that the client authenticated with.
	Username string
	// Target is host:port; the host is a name, an IPv4 address or an IPv6
	// address in brackets, the port is 1 to 65535.
	Target string
	// Client is the address that the client came from.
	Client net.Addr
}

// DialFunc opens the connection that a request asks for. Its error decides,
// by FailureOf, what the client is told.
type DialFunc func(ctx context.Context, request Request) (net.Conn, error)

// Logf writes one line; a nil Logf writes nothing. Servers never pass it
// passwords or headers.
type Logf func(format string, args ...any)

// Printf calls f when there is one.
func (f Logf) Printf(format string, args ...any) {
	if f != nil {
		f(format, args...)
	}
}

type requestKey struct{}

// WithRequest returns a context that carries the request, for a
// http.RoundTripper that must know for whom it sends.
func WithRequest(ctx context.Context, request Request) context.Context {
	return context.WithValue(ctx, requestKey{}, request)
}

// RequestFrom returns the request that WithRequest put into the context.
func RequestFrom(ctx context.Context) (Request, bool) {
	request, ok := ctx.Value(requestKey{}).(Request)
	return request, ok
}
