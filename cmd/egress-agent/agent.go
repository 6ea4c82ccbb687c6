// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/egress-proxies/egress-proxies-operator/internal/agent"
	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// serve runs the agent until ctx ends, then drains.
func serve(ctx context.Context, path string, config agentapi.Config, logger *slog.Logger) error {
	listener, err := listen(ctx, config)
	if err != nil {
		return err
	}
	server, err := newServer(path, config, listener, logger)
	if err != nil {
		_ = listener.Close()
		return err
	}
	return server.Run(ctx)
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

// newServer makes what the configuration and the store beside it say; listener
// is the server's from then on, unless it returns an error.
func newServer(path string, config agentapi.Config, listener net.Listener, logger *slog.Logger) (*agent.Server, error) {
	store, inForce, err := agentapi.OpenStore(path, config)
	if err != nil {
		return nil, err
	}
	policy, err := config.Destinations.Policy()
	if err != nil {
		return nil, err
	}
	limits := agent.BoundByDescriptors(config.Limits, 1, logger)
	dialer := &destination.Dialer{Policy: policy, Timeout: limits.DialTimeout()}
	server, err := agent.New(agent.Config{
		Listener: listener, Key: config.ControlKey, Credentials: inForce, Save: store.Save,
		Dial: func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
			return dialer.Dial(ctx, request.Target)
		},
		Limits: limits, Version: agentVersion(), Logger: logger,
	})
	if err == nil {
		logger.Info("serving", "version", agentVersion(), "address", listener.Addr().String(), "maxConnections", limits.MaxConnections)
	}
	return server, err
}
