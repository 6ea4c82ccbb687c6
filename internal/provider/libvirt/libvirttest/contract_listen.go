// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// heardWithin is far longer than any daemon takes to tell of something.
const heardWithin = 20 * time.Second

// listener listens to a Backend until the test ends.
type listener struct {
	told  chan string
	ended chan error
	stop  context.CancelFunc
}

func listen(t *testing.T, b libvirt.Backend) listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := listener{make(chan string, 1000), make(chan error, 1), cancel}
	go func() {
		l.ended <- b.Events(ctx, func(domain string) {
			select {
			case l.told <- domain:
			default: // nobody reads any more
			}
		})
	}()
	t.Cleanup(cancel)
	l.hears(t, "that it listens", "")
	return l
}

// hears waits until something is told of a domain; the daemon may tell of others', too.
func (l listener) hears(t *testing.T, what, domain string) {
	t.Helper()
	timer := time.NewTimer(heardWithin)
	defer timer.Stop()
	for {
		select {
		case name := <-l.told:
			if name == domain {
				return
			}
		case err := <-l.ended:
			l.ended <- err
			t.Fatalf("%s: the events ended: %v", what, err)
		case <-timer.C:
			t.Fatalf("%s: not told within %v", what, heardWithin)
		}
	}
}

// rest forgets what was told so far. What comes late of it is taken for the next thing: each is told at least once.
func (l listener) rest() {
	for {
		select {
		case <-l.told:
		default:
			return
		}
	}
}

func (c *contract) events(t *testing.T) {
	l := listen(t, c.Backend)
	name := c.prefix + "e"
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"define", func() error { return c.Define(t.Context(), c.domain(name, uuid.NewString(), "", "")) }},
		{"start", func() error { return c.Start(t.Context(), name) }},
		{"set metadata", func() error {
			return c.SetMetadata(t.Context(), name, libvirt.MarkNamespace, "egress", "<instance version='7'/>")
		}},
		{"destroy", func() error { return c.Destroy(t.Context(), name) }},
		{"undefine", func() error { return c.Undefine(t.Context(), name) }},
	} {
		l.rest()
		ok(t, step.what, step.do())
		l.hears(t, step.what, name)
	}
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's own error", err)
	}
	_, err := c.Domains(t.Context())
	ok(t, "the connection after it", err)
}

func (c *contract) eventsEnd(t *testing.T) {
	other, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	l := listen(t, other)
	other.Close()
	var answer *libvirt.DaemonError
	if err := <-l.ended; err == nil || errors.As(err, &answer) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an error that says nothing of the host", err)
	}
}

// talking defines and starts a domain with a console.
func (c *contract) talking(t *testing.T, suffix string) string {
	t.Helper()
	name, port := c.prefix+suffix, uint(0)
	var d libvirtxml.Domain
	ok(t, "describe", d.Unmarshal(c.domain(name, uuid.NewString(), "", "")))
	d.OS.BIOS = &libvirtxml.DomainBIOS{UseSerial: "yes"} // so that a guest without a disk has something to say
	d.Devices.Serials = []libvirtxml.DomainSerial{{
		Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}, Target: &libvirtxml.DomainSerialTarget{Port: &port},
	}}
	text, err := d.Marshal()
	ok(t, "describe", err)
	ok(t, "define", c.Define(t.Context(), text))
	return name
}

func (c *contract) consoles(t *testing.T) {
	quiet := func([]byte) {}
	wantCode(t, "what is not there", c.Console(t.Context(), c.prefix+"absent", quiet), libvirt.CodeNoDomain)
	name := c.talking(t, "c")
	wantCode(t, "what is off", c.Console(t.Context(), name, quiet), libvirt.CodeOperationInvalid)
	ok(t, "start", c.Start(t.Context(), name))
	own, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	defer own.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := c.reads(ctx, own, name, quiet)
	until(t, "a second reader is refused", c.isRead(t, name))
	_, err = own.Domains(t.Context())
	ok(t, "a call beside it", err)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's own error", err)
	}
	read := c.isRead(t, name)
	until(t, "nobody reads it", func() bool { return !read() })
	last := c.reads(t.Context(), own, name, quiet)
	until(t, "it is read again", c.isRead(t, name))
	ok(t, "destroy", c.Destroy(t.Context(), name))
	if err := <-last; err != nil {
		t.Errorf("the guest went off, and the console ended with %v", err)
	}
}

// reads reads a console as soon as nobody else does.
func (c *contract) reads(ctx context.Context, b libvirt.Backend, name string, sink func([]byte)) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		err := b.Console(ctx, name, sink)
		for libvirt.IsCode(err, libvirt.CodeOperationFailed) { // the look whether somebody reads was faster
			err = b.Console(ctx, name, sink)
		}
		ended <- err
	}()
	return ended
}

// isRead says whether somebody has begun to read a console: that shows by the refusal of another, which ends soon where it was not refused.
func (c *contract) isRead(t *testing.T, name string) func() bool {
	return func() bool {
		probe, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		return libvirt.IsCode(c.Console(probe, name, func([]byte) {}), libvirt.CodeOperationFailed)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(heardWithin)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", heardWithin, what)
		}
	}
}

// talk reads what a guest says, and ends with the connection.
func (c *contract) talk(t *testing.T) {
	name := c.talking(t, "talk")
	ok(t, "start", c.Start(t.Context(), name))
	own, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	heard := make(chan struct{}, 1)
	ended := c.reads(t.Context(), own, name, func([]byte) {
		select {
		case heard <- struct{}{}:
		default: // once is enough
		}
	})
	until(t, "the console is read", c.isRead(t, name))
	c.world.Talk(t, name)
	select {
	case <-heard:
	case err := <-ended:
		t.Fatalf("the console ended: %v", err)
	case <-time.After(heardWithin):
		t.Errorf("nothing was heard within %v", heardWithin)
	}
	own.Close()
	var answer *libvirt.DaemonError
	if err := <-ended; err == nil || errors.As(err, &answer) {
		t.Errorf("its connection was closed: got %v, want an error that says nothing of the host", err)
	}
}
