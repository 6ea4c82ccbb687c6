// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/mux"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// maxControlConnections bounds the control channel, which is apart from the
// clients' bound.
const maxControlConnections = 256

// Config is what a Server is made of. Listener, Key, Credentials and Dial are
// required.
type Config struct {
	// Listener is the server's from New on, unless New returns an error.
	Listener net.Listener
	// Key opens the control channel.
	Key agentapi.Key
	// Credentials are in force until the control channel brings others.
	Credentials []agentapi.Credential
	// Save makes credentials that came over the control channel outlive a
	// restart; nil keeps them in memory.
	Save func([]agentapi.Credential) error
	// Dial connects to what clients ask for.
	Dial proxyproto.DialFunc
	// Auth decides in place of Credentials; nil is Credentials. An open proxy
	// needs one for which proxyproto.LetsAnonymousIn is true.
	Auth proxyproto.Authenticator
	// Limits, with defaults for what is 0.
	Limits agentapi.Limits
	// Version is what the control channel says.
	Version string
	// Logger gets a line for what a person may want to know; nil is none.
	Logger *slog.Logger
}

// part is what each of the three servers behind the port can do.
type part interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

type served struct {
	part
	listener net.Listener
}

// Server is one port with its servers.
type Server struct {
	limits   agentapi.Limits
	logger   *slog.Logger
	mux      *mux.Mux
	tunneler *splice.Tunneler
	parts    []served

	closed context.Context
	close  context.CancelFunc
}

// New puts the parts together; Run serves, or Close closes the listener.
func New(c Config) (*Server, error) {
	if err := agentapi.ValidateCredentials(c.Credentials); err != nil {
		return nil, err
	}
	s := &Server{limits: c.Limits.WithDefaults(), logger: c.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	logf := proxyproto.Logf(func(format string, args ...any) { s.logger.Info(fmt.Sprintf(format, args...)) })
	credentials := agentapi.NewCredentials(time.Now)
	credentials.Replace(c.Credentials)
	if c.Auth == nil {
		c.Auth = credentials
	}
	if c.Save == nil {
		c.Save = func([]agentapi.Credential) error { return nil }
	}
	control, err := agentapi.NewServer(agentapi.ServerConfig{
		Key: c.Key, Version: c.Version, StartedAt: time.Now(),
		Credentials: credentials, Save: c.Save, Logf: logf,
		Connections: func() int { return s.mux.Stats().Open },
	})
	if err != nil {
		return nil, err
	}
	s.tunneler = &splice.Tunneler{IdleTimeout: s.limits.TunnelIdle()}
	s.mux = mux.New(c.Listener, mux.Config{
		MaxConnections: s.limits.MaxConnections,
		MaxPending:     min(s.limits.MaxConnections, mux.DefaultMaxPending),
		MaxTLS:         maxControlConnections,
		Logf:           logf,
	})
	s.parts = []served{
		{connect.NewServer(connect.Config{Auth: c.Auth, Dial: c.Dial, Tunneler: s.tunneler, Logf: logf}), s.mux.HTTP()},
		{socks5.NewServer(socks5.Config{Auth: c.Auth, Dial: c.Dial, Tunneler: s.tunneler, Logf: logf}), s.mux.SOCKS5()},
		{control, s.mux.TLS()},
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Run serves until ctx ends or a part fails, then stops accepting, lets
// tunnels go on for the drain time, and ends them. After Close it ends
// tunnels at once. No goroutine is left when it returns.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, len(s.parts)+1)
	var running sync.WaitGroup
	running.Go(func() { failed <- s.mux.Serve() })
	for _, p := range s.parts {
		running.Go(func() {
			// Fails only because the Mux was closed, which says why itself.
			if err := p.Serve(p.listener); !errors.Is(err, net.ErrClosed) {
				failed <- err
			}
		})
	}
	var cause error
	select {
	case <-ctx.Done():
	case <-s.closed.Done():
	case cause = <-failed:
	}
	s.shutdown()
	running.Wait()
	return cause
}

// Close closes the listener, and has Run end tunnels and return without
// waiting for the drain time. It may be called more than once.
func (s *Server) Close() {
	s.close()
	_ = s.mux.Close()
}

// Connections are clients' connections that are open now.
func (s *Server) Connections() int { return s.mux.Stats().Open }

func (s *Server) shutdown() {
	s.logger.Info("stopping: no new connections", "open", s.Connections(), "drainSeconds", s.limits.DrainSeconds)
	_ = s.mux.Close()
	ctx, cancel := context.WithTimeout(s.closed, s.limits.Drain())
	defer cancel()
	var stopping sync.WaitGroup
	for _, p := range s.parts {
		stopping.Go(func() {
			if err := p.Shutdown(ctx); err != nil {
				s.logger.Info("connections closed that were still open", "error", err)
			}
		})
	}
	stopping.Wait()
	s.tunneler.Close()
	s.close()
	s.logger.Info("stopped")
}
