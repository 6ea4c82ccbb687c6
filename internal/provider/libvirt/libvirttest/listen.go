// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// ErrCut is what ends the listening of Backends when CutEvents is called.
var ErrCut = errors.New("the connection to libvirt broke")

// ears are who listens to a daemon. The zero value has none.
type ears struct {
	mu   sync.Mutex
	next int
	all  map[int]ear
}

type ear struct {
	notify func(domain string)
	cut    chan struct{}
}

func (e *ears) add(notify func(string)) (cut chan struct{}, remove func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[int]ear{}
	}
	id := e.next
	e.next++
	cut = make(chan struct{})
	e.all[id] = ear{notify, cut}
	return cut, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.all, id)
	}
}

func (e *ears) tell(domain string) {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.all))
	e.mu.Unlock()
	for _, ear := range all {
		ear.notify(domain)
	}
}

// CutEvents ends all listening, as the death of the links does. Other calls go on.
func (d *Daemon) CutEvents() {
	d.ears.mu.Lock()
	defer d.ears.mu.Unlock()
	for id, ear := range d.ears.all {
		close(ear.cut)
		delete(d.ears.all, id)
	}
}

// Listeners counts who listens to events.
func (d *Daemon) Listeners() int {
	d.ears.mu.Lock()
	defer d.ears.mu.Unlock()
	return len(d.ears.all)
}

// Events tells of the daemon's domains. What a call changes is told before the caller has its answer.
func (b *Backend) Events(ctx context.Context, notify func(domain string)) error {
	var cut chan struct{}
	var remove func()
	if err := b.call(ctx, "Events", "", func() error {
		cut, remove = b.daemon.ears.add(notify)
		return nil
	}); err != nil {
		return err
	}
	defer remove()
	notify("")
	select {
	case <-cut:
		return ErrCut
	case <-b.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Say has a guest say something on its console, and returns whether somebody reads it.
func (d *Daemon) Say(name, text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[name]
	if dom == nil || dom.console == nil {
		return false
	}
	dom.console([]byte(text))
	return true
}

// goOff ends what only a running domain has; the domain may be nil.
func (dom *domain) goOff() {
	if dom == nil {
		return
	}
	dom.was = nil
	if dom.console != nil {
		close(dom.off)
		dom.console, dom.off = nil, nil
	}
}

// Console hands on what Say says, until the guest is off.
func (b *Backend) Console(ctx context.Context, name string, sink func([]byte)) error {
	var dom *domain
	var off chan struct{}
	if err := b.onDomain(ctx, "Console", name, func(_ *Daemon, d *domain) error {
		switch {
		case d.state == stateShutoff:
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: domain is not running")
		case d.console != nil:
			return fail(libvirt.CodeOperationFailed, "operation failed: Active console session exists for this domain")
		}
		dom, off = d, make(chan struct{})
		dom.console, dom.off = sink, off
		return nil
	}); err != nil {
		return err
	}
	defer func() {
		b.daemon.mu.Lock()
		defer b.daemon.mu.Unlock()
		if dom.off == off {
			dom.console, dom.off = nil, nil
		}
	}()
	select {
	case <-off:
		return nil
	case <-b.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
