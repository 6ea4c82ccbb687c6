// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"io"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// HoldConsole has a console read, and its end kept, until ReleaseConsole.
func (p *Provider) HoldConsole(ref provider.InstanceRef) {
	if t, err := p.target(ref); err == nil { // what is no instance has no console
		p.consoles.hold(t)
	}
}

// ReleaseConsole ends what HoldConsole began.
func (p *Provider) ReleaseConsole(ref provider.InstanceRef) {
	if t, err := p.target(ref); err == nil { // see HoldConsole
		p.consoles.release(t.uid)
	}
}

// Console writes what is kept of a console, with follow also what comes.
func (p *Provider) Console(ctx context.Context, ref provider.InstanceRef, follow bool, w io.Writer) error {
	t, err := p.target(ref)
	if err != nil {
		return err
	}
	if follow {
		if err := p.owns(ctx, t); err != nil {
			return err
		}
		return p.consoles.copy(ctx, t, w)
	}
	text, known := p.consoles.kept(t.uid)
	if !known {
		return &provider.Error{
			Kind: provider.Transient, Host: t.name, Object: t.object(), Message: "nothing of its console is kept: it was not started, or was Ready, before this operator began",
			Next: "follow it",
		}
	}
	_, err = w.Write(text)
	return err
}

// owns says why the domain of t is not ours, or nil.
func (p *Provider) owns(ctx context.Context, t target) error {
	_, err := p.look(ctx, t)
	if errors.Is(err, errAbsent) {
		return absent(t)
	}
	return err
}

// kept is the end of a console.
func (c *consoles) kept(uid string) (text []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.guests[uid]
	if g == nil {
		return nil, false
	}
	text, _, _ = g.tail.since(0)
	return text, true
}

// copy writes what is kept and what comes, until ctx or the provider ends, or the writing fails.
func (c *consoles) copy(ctx context.Context, t target, w io.Writer) error {
	c.mu.Lock()
	g := c.join(t)
	c.mu.Unlock()
	if g == nil {
		return context.Canceled
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leave(g)
	}()
	var at int64
	for {
		text, next, grown := g.tail.since(at)
		if _, err := w.Write(text); err != nil {
			return err
		}
		at = next
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Canceled
		}
	}
}
