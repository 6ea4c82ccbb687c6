// SPDX-License-Identifier: Apache-2.0

// Package kvm2 makes instances on KVM hosts through libvirt's RPC protocol, over one SSH connection a host.
package kvm2

import (
	"context"
	"errors"
	"fmt"
	"sync"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// linker gives the link that a backend talks over.
type linker interface {
	Get(ctx context.Context) (*link.Link, error)
	// Dedicated dials a link of its own.
	Dedicated(ctx context.Context) (*link.Link, error)
	Close()
}

// backend is one host's daemon and one pool of it. It implements libvirt.Backend.
type backend struct {
	linker linker
	pool   string

	mu sync.Mutex
	// Known of the daemon behind the current link, and forgotten with it.
	current *link.Link
	facts   facts
}

// facts that do not change while a daemon runs.
type facts struct {
	pool    golibvirt.StoragePool
	version uint64
}

var _ libvirt.Backend = (*backend)(nil)

// NewBackend talks to the pool of one host over the links that t describes. The first call dials.
func NewBackend(t link.Target, pool string) libvirt.Backend {
	return &backend{linker: link.NewKeeper(t), pool: pool}
}

// Close ends the links.
func (b *backend) Close() { b.linker.Close() }

// Dedicated dials a link of its own.
func (b *backend) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	l, err := b.linker.Dedicated(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &backend{linker: single{b.linker, l}, pool: b.pool}, nil
}

// single is a linker of one link that is never dialled anew.
type single struct {
	parent linker
	link   *link.Link
}

func (s single) Get(context.Context) (*link.Link, error) {
	if err := s.link.Err(); err != nil {
		return nil, err
	}
	return s.link, nil
}

func (s single) Dedicated(ctx context.Context) (*link.Link, error) {
	if err := s.link.Err(); err != nil {
		return nil, err
	}
	return s.parent.Dedicated(ctx)
}

func (s single) Close() { s.link.Close() }

// call runs f on the host's link.
func call[T any](ctx context.Context, b *backend, f func(*golibvirt.Libvirt) (T, error)) (T, error) {
	l, err := b.linker.Get(ctx)
	if err != nil {
		var none T
		return none, translate(err)
	}
	v, err := link.Call(ctx, l, f)
	return v, translate(err)
}

// do is call for an f without a result.
func do(ctx context.Context, b *backend, f func(*golibvirt.Libvirt) error) error {
	_, err := call(ctx, b, func(c *golibvirt.Libvirt) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// known returns what the daemon behind the current link is known to be, and asks it once a link.
func (b *backend) known(ctx context.Context) (facts, error) {
	l, err := b.linker.Get(ctx)
	if err != nil {
		return facts{}, translate(err)
	}
	b.mu.Lock()
	if b.current == l {
		defer b.mu.Unlock()
		return b.facts, nil
	}
	b.mu.Unlock()
	f, err := link.Call(ctx, l, func(c *golibvirt.Libvirt) (facts, error) {
		var f facts
		var err error
		if f.version, err = c.ConnectGetLibVersion(); err != nil {
			return f, err
		}
		f.pool, err = c.StoragePoolLookupByName(b.pool)
		return f, err
	})
	if err != nil {
		return f, translate(err)
	}
	b.mu.Lock()
	b.current, b.facts = l, f
	b.mu.Unlock()
	return f, nil
}

// forget makes the next call ask for the pool again: it was removed, or made anew with another UUID.
func (b *backend) forget() {
	b.mu.Lock()
	b.current = nil
	b.mu.Unlock()
}

// inPool runs f with the pool's handle.
func inPool[T any](ctx context.Context, b *backend, f func(*golibvirt.Libvirt, golibvirt.StoragePool) (T, error)) (T, error) {
	known, err := b.known(ctx)
	if err != nil {
		var none T
		return none, err
	}
	v, err := call(ctx, b, func(c *golibvirt.Libvirt) (T, error) { return f(c, known.pool) })
	if libvirt.IsCode(err, libvirt.CodeNoStoragePool) {
		b.forget()
	}
	return v, err
}

// translate puts go-libvirt's and link's errors into the terms of the seam. The daemon's own answers become *libvirt.DaemonError,
// and nothing else does.
func translate(err error) error {
	var answer golibvirt.Error
	var auth *link.AuthError
	var setup *link.SetupError
	var throttled *link.ThrottledError
	var dial *link.DialError
	var dead *link.DeadError
	var source *link.SourceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &source):
		return err
	case errors.As(err, &answer):
		return &libvirt.DaemonError{Code: int(answer.Code), Message: answer.Message}
	case errors.Is(err, golibvirt.ErrUnsupported):
		return &libvirt.DaemonError{Code: libvirt.CodeNoSupport, Message: "this libvirt does not know the procedure"}
	case errors.As(err, &auth):
		return &libvirt.HostError{Reason: provider.HostUnauthorized, Message: auth.Message, Err: err}
	case errors.As(err, &setup):
		return &libvirt.HostError{Reason: provider.HostIncapable, Message: setup.Message, Err: err}
	case errors.As(err, &throttled):
		return &libvirt.HostError{
			Reason: provider.HostDegraded, Message: throttled.Message, Err: err,
			Next: "it is tried again, at a slower pace; raise the limit in the host's sshd_config where that does not help",
		}
	case errors.As(err, &dial):
		reason := provider.HostUnreachable
		if dial.Timeout() {
			reason = provider.HostTimeout
		}
		return &libvirt.HostError{
			Reason: reason, Err: err,
			Message: fmt.Sprintf("%s cannot be reached: %s: %v", dial.Host, dial.Stage, dial.Err),
			Next:    "check the host, its address in the providers file and the network between",
		}
	case errors.As(err, &dead):
		return &libvirt.HostError{Reason: provider.HostUnreachable, Message: "the link broke: " + dead.Reason, Err: err}
	}
	return err
}
