// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agent"
	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// slot is one exit and the instance on it.
type slot struct {
	exit          *exit
	unschedulable bool
	// unlistenable is why the exit's loopback address cannot be listened on, found by the last look.
	unlistenable problem
	instance     *instance
	// told is the problem that the watchers know of.
	told problem
}

// instance is one Proxy's listener.
type instance struct {
	provider.InstanceSpec
	uid         string
	key         agentapi.Key
	credentials []agentapi.Credential
	created     time.Time

	// server is nil while the instance does not listen, and problem says why.
	server   *agent.Server
	listens  netip.AddrPort
	started  time.Time
	problem  problem
	ended    chan struct{}
	deleting bool
}

// shut ends the instance's server; ended says when it has.
func (i *instance) shut() {
	if i.server != nil {
		i.server.Close()
	}
}

// problem is why the slot does not serve, or would not.
func (s *slot) problem() problem {
	if is := s.exit.presence(); is.problem.exists() {
		return is.problem
	}
	if s.instance != nil && s.instance.problem.exists() {
		return s.instance.problem
	}
	return s.unlistenable
}

// news says whether watchers are to be told of the slot, and for whom: they know then.
func (s *slot) news() (uid string, news bool) {
	now := s.problem()
	if now == s.told {
		return "", false
	}
	s.told = now
	if s.instance != nil {
		return s.instance.uid, true
	}
	return "", !now.exists()
}

// address is where the instance listens, or is to listen; not valid while the exit has no address.
func (s *slot) address(port int) netip.AddrPort {
	a := s.exit.Listen
	if !a.IsValid() {
		a = s.exit.presence().preferred()
	}
	return netip.AddrPortFrom(a, uint16(port))
}

func listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address.String())
}

// upkeep opens the instance's listener where it has none, and moves it where its address has changed. While the exit has no address it
// stays, to tell clients so. mu is held.
func (p *Provider) upkeep(s *slot) {
	i := s.instance
	if i.deleting || p.ctx.Err() != nil {
		return
	}
	address := s.address(i.Port)
	if i.server != nil && (address == i.listens || !address.Addr().IsValid()) {
		return
	}
	if i.server != nil {
		i.server.Close()
		i.server = nil
	}
	if !address.Addr().IsValid() {
		return // the exit's own problem says why
	}
	if err := p.serve(s, address); err != nil {
		i.problem = problem{provider.HostDegraded, err.Message, err.Next}
	}
}

// serve opens the listener of the slot's instance. mu is held.
func (p *Provider) serve(s *slot, address netip.AddrPort) *provider.Error {
	i := s.instance
	listener, err := listen(p.ctx, address)
	if err != nil {
		return p.unlistened(s, address, err)
	}
	server, err := agent.New(agent.Config{
		Listener: listener, Key: i.key, Credentials: i.credentials, Dial: s.exit.Dial, Limits: p.limits, Version: p.version,
		Logger: p.log.With("exit", s.exit.Name),
		Save: func(credentials []agentapi.Credential) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			i.credentials = slices.Clone(credentials)
			return nil
		},
	})
	if err != nil {
		_ = listener.Close()
		return p.failure(s, provider.Permanent, err.Error(), "correct the Secret of spec.auth.secretRef")
	}
	ended := make(chan struct{})
	i.server, i.listens, i.started, i.problem, i.ended = server, address, time.Now(), problem{}, ended
	p.background.Go(func() {
		err := server.Run(context.Background())
		server.Close()
		p.mu.Lock()
		if i.server == server {
			i.server = nil
			if err != nil {
				i.problem = problem{provider.HostDegraded, fmt.Sprintf("the listener at %s ended: %s", address, cause(err)), "it is opened again every few seconds"}
			}
		}
		p.mu.Unlock()
		close(ended)
		if err != nil {
			p.lookSoon()
		}
	})
	return nil
}

func (p *Provider) failure(s *slot, kind provider.Kind, message, next string) *provider.Error {
	return &provider.Error{Kind: kind, Host: s.exit.Name, Object: "listener " + p.listenerName(s.instance.uid), Message: message, Next: next}
}

// unlistened says why an address cannot be listened on.
func (p *Provider) unlistened(s *slot, address netip.AddrPort, err error) *provider.Error {
	var e *provider.Error
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e = p.failure(s, provider.Conflict, fmt.Sprintf("another program listens at %s", address), "end that program, or change spec.port")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e = p.failure(s, provider.Permanent, fmt.Sprintf("this system lets no unprivileged program listen at %s", address),
			"set spec.port to 1024 or more, or give the operator the capability CAP_NET_BIND_SERVICE")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		wrong := unbindable(address.Addr(), err)
		e = p.failure(s, provider.Transient, wrong.message, wrong.next)
	default:
		e = p.failure(s, provider.Transient, fmt.Sprintf("listening at %s: %s", address, cause(err)), "it is tried again")
	}
	e.Err = err
	return e
}
