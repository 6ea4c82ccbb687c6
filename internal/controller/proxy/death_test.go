// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errDead = errors.New("the operator is dead")

// death ends the operator as kill -9 does, at the provider call that a test chose: from then on no call of its reaches anything.
type death struct {
	mu    sync.Mutex
	calls int
	// at the at-th provider call the operator dies, before the call has an effect or after it; 0 is never.
	at    int
	after bool
	dead  bool
	died  chan struct{}
}

// plan a death.
func (d *death) plan(at int, after bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.after, d.died = at, after, make(chan struct{})
}

// revive lets the next operator live.
func (d *death) revive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead, d.at = false, 0
}

// enter a provider call; leave is called at its end.
func (d *death) enter() (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	now := d.at != 0 && d.calls == d.at
	if now && !d.after {
		d.die()
	}
	if d.dead {
		return nil, errDead
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if now {
			d.die()
		}
	}, nil
}

func (d *death) die() {
	d.dead = true
	close(d.died)
}

func (d *death) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errDead
	}
	return nil
}

// mortal is the operator's client: it writes nothing once the operator is dead.
type mortal struct {
	client.Client
	death *death
}

func (m mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := m.death.check(); err != nil {
		return err
	}
	return m.Client.Create(ctx, o, opts...)
}

func (m mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := m.death.check(); err != nil {
		return err
	}
	return m.Client.Patch(ctx, o, p, opts...)
}

func (m mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m.death} }

type mortalStatus struct {
	client.SubResourceWriter
	death *death
}

func (m mortalStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := m.death.check(); err != nil {
		return err
	}
	return m.SubResourceWriter.Patch(ctx, o, p, opts...)
}

type mortalReader struct {
	client.Reader
	death *death
}

func (m mortalReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := m.death.check(); err != nil {
		return err
	}
	return m.Reader.Get(ctx, key, o, opts...)
}
