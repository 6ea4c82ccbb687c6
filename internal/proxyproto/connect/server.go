// SPDX-License-Identifier: Apache-2.0

// Package connect is an HTTP proxy: CONNECT tunnels and plain HTTP
// forwarding on the server's side, and the client's side of CONNECT through
// an upstream proxy.
//
// It adds neither Via nor Forwarded: who uses an exit is nobody's business.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// Defaults of Config.
const (
	DefaultHeaderTimeout  = 10 * time.Second
	DefaultIdleTimeout    = 60 * time.Second
	DefaultStallTimeout   = 2 * time.Minute
	DefaultMaxHeaderBytes = 32 << 10
)

// Config is what a Server needs; Auth, Dial and Tunneler are required.
type Config struct {
	Auth     proxyproto.Authenticator
	Dial     proxyproto.DialFunc
	Tunneler *splice.Tunneler
	Logf     proxyproto.Logf
	// Transport sends plain HTTP requests; nil is one over Dial that keeps
	// connections to origins alive. A transport of one's own finds for whom
	// it sends with proxyproto.RequestFrom.
	Transport http.RoundTripper

	// HeaderTimeout is how long a request's header may take.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a client's connection may wait for its next
	// request.
	IdleTimeout time.Duration
	// StallTimeout is how long a plain HTTP exchange may go on without a byte.
	StallTimeout time.Duration
	// MaxHeaderBytes bounds a request's, and an origin's answer's, header.
	MaxHeaderBytes int
}

// Server serves HTTP proxy clients until Shutdown.
type Server struct {
	config  Config
	http    http.Server
	forward *httputil.ReverseProxy
	origins *http.Transport // nil when the transport is the caller's

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closing bool
	tunnels sync.WaitGroup
}

// errShutdown ends what outlives a shutdown's grace.
var errShutdown = errors.New("the proxy shuts down")

// NewServer makes a server.
func NewServer(config Config) *Server {
	setDefault(&config.HeaderTimeout, DefaultHeaderTimeout)
	setDefault(&config.IdleTimeout, DefaultIdleTimeout)
	setDefault(&config.StallTimeout, DefaultStallTimeout)
	setDefault(&config.MaxHeaderBytes, DefaultMaxHeaderBytes)
	s := &Server{config: config}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	logger := log.New(logWriter{config.Logf}, "", 0)
	s.forward = s.newForward(logger)
	s.http = http.Server{
		Handler:           s,
		ReadHeaderTimeout: config.HeaderTimeout,
		IdleTimeout:       config.IdleTimeout,
		MaxHeaderBytes:    config.MaxHeaderBytes,
		ErrorLog:          logger,
		// Its own answer to OPTIONS * would need no credentials.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return s.ctx },
		// Not nil: no HTTP/2, whose CONNECT is another one.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return s
}

func setDefault[T int | time.Duration](value *T, fallback T) {
	if *value <= 0 {
		*value = fallback
	}
}

// logWriter is a Logf as net/http wants it.
type logWriter struct{ logf proxyproto.Logf }

func (w logWriter) Write(p []byte) (int, error) {
	w.logf.Printf("%s", p)
	return len(p), nil
}

// Serve accepts from l until Shutdown, then returns nil; otherwise it
// returns the error of Accept. Nobody else bounds the number of connections:
// l must, as a mux.Mux's listener does.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits for requests and tunnels. When ctx ends
// first it closes them and returns the cause; no goroutine is left either way.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	defer s.closeOrigins()
	defer s.cancel(errShutdown)

	err := s.http.Shutdown(ctx)
	ended := make(chan struct{})
	go func() { s.tunnels.Wait(); close(ended) }()
	if err == nil {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
		}
	}
	s.cancel(errShutdown)
	_ = s.http.Close()
	<-ended
	return context.Cause(ctx)
}

func (s *Server) closeOrigins() {
	if s.origins != nil {
		s.origins.CloseIdleConnections()
	}
}

// ServeHTTP serves one request: first the credentials, whatever is asked.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	username, ok := s.authenticate(r)
	if !ok {
		w.Header().Set("Proxy-Authenticate", `Basic realm="egress"`)
		refuse(w, http.StatusProxyAuthRequired, "unauthorized", "This proxy requires a username and a password.")
		return
	}
	if r.Method == http.MethodConnect {
		s.serveConnect(w, r, username)
		return
	}
	s.serveForward(w, r, username)
}

// refuse answers a request that is not carried out.
func refuse(w http.ResponseWriter, status int, reason, sentence string) {
	w.Header().Set(proxyproto.HeaderError, reason)
	http.Error(w, sentence, status)
}

func refuseFailure(w http.ResponseWriter, err error) {
	failure := proxyproto.FailureOf(err)
	refuse(w, failure.HTTPStatus(), string(failure), failure.Sentence())
}
