// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// MaxInFlight is how many calls a link carries at a time. A daemon stops reading a
// client with more than five requests outstanding, keepalives included.
const MaxInFlight = 4

// Link is one open connection to libvirt on one host. Its methods may be called from
// many goroutines at once.
type Link struct {
	host        string
	via         way
	callTimeout time.Duration

	guard   *guard
	library *libvirt.Libvirt
	slots   chan struct{} // one for each call that the daemon has not answered

	mu        sync.Mutex
	abandoned int // calls that hold a slot though their callers have gone
}

// newLink speaks libvirt over raw. sever cuts the connection under raw and does not block.
func newLink(t Target, raw io.ReadWriter, sever func()) *Link {
	g := newGuard(raw, sever, t.KeepaliveInterval, t.KeepaliveCount)
	g.count = t.Count
	return &Link{
		host:        t.Address,
		callTimeout: t.CallTimeout,
		guard:       g,
		library:     libvirt.NewWithDialer(dialers.NewAlreadyConnected(&libraryConn{g: g})),
		slots:       make(chan struct{}, MaxInFlight),
	}
}

// open does libvirt's part of a dial; it ends with ctx.
func (l *Link) open(ctx context.Context) error {
	result := make(chan error, 1)
	go func() {
		result <- l.library.ConnectToURI(libvirt.QEMUSystem)
		l.guard.release()
	}()
	select {
	case err := <-result: // soon, too, when the connection dies
		var answer libvirt.Error
		if dead := l.cause(); dead != nil && !errors.As(err, &answer) {
			return dead
		}
		return err
	case <-ctx.Done():
		l.kill(context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// Host is the address that the link was dialed at.
func (l *Link) Host() string { return l.host }

// Via is how the host's socket is reached over SSH: "socket forwarding", or by the
// command that it names.
func (l *Link) Via() string { return l.via.String() }

// Done is closed when the link is dead.
func (l *Link) Done() <-chan struct{} { return l.guard.dead }

// Err is nil as long as the link lives, and a *DeadError from then on.
func (l *Link) Err() error {
	if cause := l.cause(); cause != nil {
		return &DeadError{Host: l.host, Reason: cause.Error()}
	}
	return nil
}

// Close ends the link and every call on it. It does not block.
func (l *Link) Close() { l.kill(errors.New("closed by us")) }

func (l *Link) kill(cause error) { l.guard.die(cause) }

func (l *Link) cause() error {
	select {
	case <-l.guard.dead:
		return l.guard.cause
	default:
		return nil
	}
}

// Do calls f with the libvirt client, as one of at most MaxInFlight at a time.
//
// It returns what f returns; or a *DeadError at once when the link dies; or, when ctx
// ends or the call timeout passes, an error that wraps the context's. In the latter
// cases f may still be running: it must not share variables with the caller (see
// Call), and it must do nothing that waits besides plain libvirt calls. Calls that
// open a stream are refused, and end the link.
func (l *Link) Do(ctx context.Context, f func(*libvirt.Libvirt) error) error {
	_, err := Call(ctx, l, func(c *libvirt.Libvirt) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// Call is Do for an f with a result, which is handed over safely even when f outlives
// the call.
func Call[T any](ctx context.Context, l *Link, f func(*libvirt.Libvirt) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithTimeoutCause(ctx, l.callTimeout, l.unanswered())
	defer cancel()
	if err := l.acquire(ctx); err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	result := make(chan outcome, 1)
	s := &slot{link: l}
	go func() {
		defer s.free()
		v, err := guarded(l.library, f)
		result <- outcome{v, err}
	}()
	select {
	case o := <-result:
		return o.value, l.judge(o.err)
	case <-l.guard.dead:
		return none, l.Err()
	case <-ctx.Done():
		s.abandon()
		return none, l.ended(ctx)
	}
}

// guarded keeps a panic from ending the process: the answers that f decodes were
// written by a host.
func guarded[T any](c *libvirt.Libvirt, f func(*libvirt.Libvirt) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a libvirt call: %v\n%s", p, debug.Stack())
		}
	}()
	return f(c)
}

func (l *Link) acquire(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return l.ended(ctx)
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-l.guard.dead:
		return l.Err()
	case <-ctx.Done():
		return l.ended(ctx)
	}
}

// slot is the place of one call among those in flight.
type slot struct {
	link             *Link
	freed, abandoned bool // guarded by link.mu
}

func (s *slot) free() {
	s.link.mu.Lock()
	s.freed = true
	if s.abandoned {
		s.link.abandoned--
	}
	s.link.mu.Unlock()
	<-s.link.slots
}

// abandon says that the caller has gone. The call keeps its slot until the daemon
// answers; a link whose every slot is held so is of no use to anybody, and dies.
func (s *slot) abandon() {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.freed {
		return
	}
	s.abandoned = true
	if s.link.abandoned++; s.link.abandoned == MaxInFlight {
		s.link.kill(fmt.Errorf("%d calls went unanswered until their callers gave up", MaxInFlight))
	}
}

// judge tells the daemon's answer from the end of the link.
func (l *Link) judge(err error) error {
	var answer libvirt.Error
	if err == nil || errors.As(err, &answer) {
		return err
	}
	if dead := l.Err(); dead != nil {
		return dead
	}
	return err
}

func (l *Link) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return fmt.Errorf("call to %s: %w", l.host, cause)
}

func (l *Link) unanswered() error {
	return fmt.Errorf("libvirt did not answer within %v: %w", l.callTimeout, context.DeadlineExceeded)
}
