// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/digitalocean/go-libvirt"
)

// eventTypes are the messages that the daemon sends of the events that we subscribe to, by procedure. Each begins with the subscription and
// the domain; no more of it is used.
var eventTypes = map[uint32]reflect.Type{
	318: reflect.TypeFor[libvirt.DomainEventCallbackLifecycleMsg](),
	324: reflect.TypeFor[libvirt.DomainEventCallbackIOErrorReasonMsg](),
	348: reflect.TypeFor[libvirt.DomainEventCallbackAgentLifecycleMsg](),
	379: reflect.TypeFor[libvirt.DomainEventCallbackMetadataChangeMsg](),
}

// subscriptions in the order in which they are made. A daemon that is too old for one answers with an error; without the first there is no
// use in the others.
var subscriptions = []libvirt.DomainEventID{
	libvirt.DomainEventIDLifecycle, libvirt.DomainEventIDIoErrorReason, libvirt.DomainEventIDAgentLifecycle, libvirt.DomainEventIDMetadataChange,
}

const (
	// maxEvent bounds a message: names, a path, a reason.
	maxEvent = 64 << 10
	// eventPause is how long what comes after an event is gathered: a guest that makes events without end wakes nobody more often.
	eventPause = 100 * time.Millisecond
	// unsubscribeTime bounds the farewell to a daemon that is asked no more.
	unsubscribeTime = 2 * time.Second
)

// Events subscribes to what the daemon tells of all its domains (lifecycle, I/O errors, guest agents, metadata), and calls notify with the name
// of each domain that something was told of, from one goroutine. An empty name, which is the first once the subscription holds, means that
// anything may have changed. What is told while notify runs is gathered, a name once.
//
// It returns when the link dies, with a *DeadError; when ctx ends, with an error that wraps its own; or when the daemon refuses, with its
// libvirt.Error.
func (l *Link) Events(ctx context.Context, notify func(domain string)) error {
	box := newMailbox()
	defer l.guard.listen(box)()
	made, err := l.subscribe(ctx)
	defer l.unsubscribe(ctx, made)
	if err != nil {
		return err
	}
	box.put("")
	for {
		select {
		case <-box.ready:
		case <-ctx.Done():
			return l.ended(ctx)
		case <-l.guard.dead:
			return l.Err()
		}
		for _, domain := range box.take() {
			notify(domain)
		}
		if err := l.pause(ctx); err != nil {
			return err
		}
	}
}

func (l *Link) pause(ctx context.Context) error {
	timer := time.NewTimer(eventPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return l.ended(ctx)
	case <-l.guard.dead:
		return l.Err()
	}
}

// subscribe returns what the daemon knows the subscriptions by, also those made before an error.
func (l *Link) subscribe(ctx context.Context) (made []int32, err error) {
	for i, event := range subscriptions {
		id, err := Call(ctx, l, func(c *libvirt.Libvirt) (int32, error) {
			return c.ConnectDomainEventCallbackRegisterAny(int32(event), nil)
		})
		var refused libvirt.Error
		switch {
		case err == nil:
			made = append(made, id)
		case i == 0 || !errors.As(err, &refused):
			return made, err
		}
	}
	return made, nil
}

// unsubscribe tells a daemon that lives on.
func (l *Link) unsubscribe(ctx context.Context, made []int32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTime)
	defer cancel()
	for _, id := range made {
		err := l.Do(ctx, func(c *libvirt.Libvirt) error { return c.ConnectDomainEventCallbackDeregisterAny(id) })
		if err != nil {
			return // the daemon forgets them with the link
		}
	}
}

// listen has a mailbox told of events, until it is removed.
func (g *guard) listen(box *mailbox) (remove func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.boxes[box] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.boxes, box)
	}
}

func (g *guard) listens() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.boxes) > 0
}

// routeEvent takes the events that are subscribed to. What no subscription of ours can bring is dropped unread.
func (g *guard) routeEvent(h header) receiver {
	t, ok := eventTypes[h.procedure]
	if !ok || h.program != programRemote || h.length > maxEvent || !g.listens() {
		return nil
	}
	return func(frame []byte) error {
		domain, err := eventDomain(h, t, frame[headerLen:])
		if err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for box := range g.boxes {
			box.put(domain)
		}
		return nil
	}
}

// eventDomain is the name of the domain that an event is about.
func eventDomain(h header, t reflect.Type, payload []byte) (string, error) {
	if _, ok := skip(payload, t); !ok {
		return "", notLibvirt("an event of procedure %d with a length that cannot be", h.procedure)
	}
	const subscription = 4
	n, rest, _ := count(payload[subscription:], maxString)
	return string(rest[:n]), nil
}
