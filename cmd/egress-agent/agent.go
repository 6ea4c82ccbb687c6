// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/mux"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// maxControlConnections bounds the control channel, which is apart from the
// clients' bound.
const maxControlConnections = 256

// server is what each of the agent's three servers can do.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// agent is one port with its servers.
type agent struct {
	config   agentapi.Config
	limits   agentapi.Limits
	logger   *slog.Logger
	mux      *mux.Mux
	tunneler *splice.Tunneler
	servers  []served
}

type served struct {
	server   server
	listener net.Listener
}

// serve runs the agent until ctx ends, then drains.
func serve(ctx context.Context, path string, config agentapi.Config, logger *slog.Logger) error {
	listener, err := listen(ctx, config)
	if err != nil {
		return err
	}
	a, err := newAgent(path, config, listener, logger)
	if err != nil {
		_ = listener.Close()
		return err
	}
	logger.Info("serving", "version", agentVersion(), "address", listener.Addr().String(), "maxConnections", a.limits.MaxConnections)
	return a.run(ctx)
}

// listen opens the port on IPv4 and IPv6, or on what the machine has of it.
func listen(ctx context.Context, config agentapi.Config) (net.Listener, error) {
	host := ""
	if config.ListenAddress.IsValid() {
		host = config.ListenAddress.String()
	}
	address := net.JoinHostPort(host, strconv.Itoa(config.ListenPort))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; another program may have the port: change listenPort, or end that program", err)
	}
	return listener, nil
}

// newAgent puts the parts together; listener is the agent's from then on,
// unless it returns an error.
func newAgent(path string, config agentapi.Config, listener net.Listener, logger *slog.Logger) (*agent, error) {
	store, inForce, err := agentapi.OpenStore(path, config)
	if err != nil {
		return nil, err
	}
	policy, err := config.Destinations.Policy()
	if err != nil {
		return nil, err
	}
	credentials := agentapi.NewCredentials(time.Now)
	credentials.Replace(inForce)
	logf := proxyproto.Logf(func(format string, args ...any) { logger.Info(fmt.Sprintf(format, args...)) })

	a := &agent{config: config, limits: config.Limits.WithDefaults(), logger: logger}
	a.boundByDescriptors()
	a.tunneler = &splice.Tunneler{IdleTimeout: a.limits.TunnelIdle()}
	dialer := &destination.Dialer{Policy: policy, Timeout: a.limits.DialTimeout()}
	dial := func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
		return dialer.Dial(ctx, request.Target)
	}
	a.mux = mux.New(listener, mux.Config{
		MaxConnections: a.limits.MaxConnections,
		MaxPending:     min(a.limits.MaxConnections, mux.DefaultMaxPending),
		MaxTLS:         maxControlConnections,
		Logf:           logf,
	})
	control, err := agentapi.NewServer(agentapi.ServerConfig{
		Key: config.ControlKey, Version: agentVersion(), StartedAt: time.Now(),
		Credentials: credentials, Save: store.Save, Logf: logf,
		Connections: func() int { return a.mux.Stats().Open },
	})
	if err != nil {
		return nil, err
	}
	a.servers = []served{
		{connect.NewServer(connect.Config{Auth: credentials, Dial: dial, Tunneler: a.tunneler, Logf: logf}), a.mux.HTTP()},
		{socks5.NewServer(socks5.Config{Auth: credentials, Dial: dial, Tunneler: a.tunneler, Logf: logf}), a.mux.SOCKS5()},
		{control, a.mux.TLS()},
	}
	return a, nil
}

// reservedDescriptors are for pipes, kept connections to origins, files.
const reservedDescriptors = 512

// boundByDescriptors keeps the bound on connections under what the system
// lets this process open: two descriptors a tunnel, and one for a client that
// is silent yet.
func (a *agent) boundByDescriptors() {
	limit, ok := descriptorLimit()
	if !ok {
		return
	}
	if most := max(1, int(min(limit, 1<<30)-min(limit, reservedDescriptors))/3); a.limits.MaxConnections > most {
		a.logger.Warn("fewer connections than configured: the process may not open more files (raise LimitNOFILE)",
			"configured", a.limits.MaxConnections, "bound", most, "descriptors", limit)
		a.limits.MaxConnections = most
	}
}

// run serves until ctx ends or a part fails, then stops accepting, lets
// tunnels go on for the drain time, and ends them. No goroutine is left.
func (a *agent) run(ctx context.Context) error {
	failed := make(chan error, len(a.servers)+1)
	var running sync.WaitGroup
	running.Go(func() { failed <- a.mux.Serve() })
	for _, s := range a.servers {
		running.Go(func() {
			// Fails only because the Mux was closed, which says why itself.
			if err := s.server.Serve(s.listener); !errors.Is(err, net.ErrClosed) {
				failed <- err
			}
		})
	}
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
	}
	a.shutdown()
	running.Wait()
	return cause
}

func (a *agent) shutdown() {
	a.logger.Info("stopping: no new connections", "open", a.mux.Stats().Open, "drainSeconds", a.limits.DrainSeconds)
	_ = a.mux.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.limits.Drain())
	defer cancel()
	var stopping sync.WaitGroup
	for _, s := range a.servers {
		stopping.Go(func() {
			if err := s.server.Shutdown(ctx); err != nil {
				a.logger.Info("connections closed that were still open", "error", err)
			}
		})
	}
	stopping.Wait()
	a.tunneler.Close()
	a.logger.Info("stopped")
}
