// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// herald is a peer that takes subscriptions, and keeps the connection that they came over.
type herald struct {
	linktest.Peer
	refuse       map[uint32]bool // events that the daemon does not know
	conn         *linktest.PeerConn
	subscribed   atomic.Int32
	unsubscribed atomic.Int32
}

func newHerald(refuse ...uint32) *herald {
	h := &herald{refuse: map[uint32]bool{}}
	for _, event := range refuse {
		h.refuse[event] = true
	}
	h.OnCall = func(c *linktest.PeerConn, f linktest.Frame) bool {
		switch f.Procedure {
		case linktest.RegisterEvent:
			h.conn = c
			if h.refuse[binary.BigEndian.Uint32(f.Payload)] {
				c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(8, "unsupported event ID")))
				return true
			}
			c.Send(f.Answer(linktest.OK, binary.BigEndian.AppendUint32(nil, uint32(h.subscribed.Add(1)))))
		case linktest.DeregisterEvent:
			h.unsubscribed.Add(1)
			c.Send(f.Answer(linktest.OK, nil))
		default:
			return false
		}
		return true
	}
	return h
}

// listening subscribes, and returns what is told and how it ends.
func listening(ctx context.Context, l *Link) (told chan string, ended chan error) {
	told, ended = make(chan string, 10_000), make(chan error, 1)
	go func() { ended <- l.Events(ctx, func(domain string) { told <- domain }) }()
	return told, ended
}

func all(told chan string) []string {
	var names []string
	for len(told) > 0 {
		names = append(names, <-told)
	}
	slices.Sort(names)
	return names
}

func TestEvents(t *testing.T) {
	t.Run("what changed is told by name, once for many events, and anything may have changed before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			peer := newHerald()
			l := mustPipe(t, Target{}, &peer.Peer)
			ctx, cancel := context.WithCancel(t.Context())
			told, ended := listening(ctx, l)
			synctest.Wait()
			if got := all(told); !slices.Equal(got, []string{""}) {
				t.Errorf("at first: %q", got)
			}
			if n := peer.subscribed.Load(); int(n) != len(subscriptions) {
				t.Errorf("%d subscriptions", n)
			}
			for range 100 {
				peer.conn.Send(linktest.Event(linktest.EventLifecycle, "a"), linktest.Event(linktest.EventAgent, "b"))
			}
			time.Sleep(eventPause)
			synctest.Wait()
			if got := all(told); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("told %q", got)
			}
			mustWork(t, l)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			if peer.unsubscribed.Load() != peer.subscribed.Load() {
				t.Errorf("%d of %d subscriptions were given up", peer.unsubscribed.Load(), peer.subscribed.Load())
			}
			mustWork(t, l)
		})
	})
	t.Run("the first event is told without delay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			peer := newHerald()
			l := mustPipe(t, Target{}, &peer.Peer)
			told, _ := listening(t.Context(), l)
			time.Sleep(time.Minute)
			all(told)
			before := time.Now()
			peer.conn.Send(linktest.Event(linktest.EventLifecycle, "a"))
			if got := <-told; got != "a" || time.Since(before) != 0 {
				t.Errorf("told %q after %v", got, time.Since(before))
			}
			l.Close()
		})
	})
	t.Run("the end of the link ends it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			peer := newHerald()
			l := mustPipe(t, Target{}, &peer.Peer)
			_, ended := listening(t.Context(), l)
			synctest.Wait()
			peer.conn.Close()
			var dead *DeadError
			if err := <-ended; !errors.As(err, &dead) {
				t.Errorf("ended with %v", err)
			}
		})
	})
	t.Run("a daemon that is too old for some events tells the others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			peer := newHerald(uint32(libvirt.DomainEventIDAgentLifecycle), uint32(libvirt.DomainEventIDMetadataChange))
			l := mustPipe(t, Target{}, &peer.Peer)
			told, _ := listening(t.Context(), l)
			synctest.Wait()
			peer.conn.Send(linktest.Event(linktest.EventLifecycle, "a"))
			time.Sleep(eventPause)
			synctest.Wait()
			if got := all(told); !slices.Equal(got, []string{"", "a"}) {
				t.Errorf("told %q", got)
			}
			l.Close()
		})
	})
	t.Run("a daemon that refuses is an error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			peer := newHerald(uint32(libvirt.DomainEventIDLifecycle))
			l := mustPipe(t, Target{}, &peer.Peer)
			_, ended := listening(t.Context(), l)
			var refused libvirt.Error
			if err := <-ended; !errors.As(err, &refused) {
				t.Errorf("ended with %v", err)
			}
			mustWork(t, l)
		})
	})
}

func TestManyEvents(t *testing.T) {
	t.Run("events of more domains than fit mean: anything", func(t *testing.T) {
		box := newMailbox()
		for i := range maxMail {
			box.put(fmt.Sprint(i))
		}
		if n := len(box.names); n != maxMail {
			t.Fatalf("holds %d", n)
		}
		box.put("one more")
		box.put("and one")
		if got := box.take(); !slices.Equal(got, []string{""}) {
			t.Errorf("took %d names", len(got))
		}
		if len(box.take()) != 0 {
			t.Error("not empty")
		}
	})
	t.Run("events without end keep no call from its answer", func(t *testing.T) {
		peer := newHerald()
		h := startHost(t, &peer.Peer, nil)
		l := mustDial(t, h.target)
		held := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Events(ctx, func(string) { <-held }) }()
		for peer.subscribed.Load() < int32(len(subscriptions)) {
			mustWork(t, l)
		}
		for i := range 3 * maxMail {
			peer.conn.Send(linktest.Event(linktest.EventLifecycle, fmt.Sprint(i)))
		}
		mustWork(t, l)
		close(held)
		cancel()
		<-ended
	})
}

func TestEventFrames(t *testing.T) {
	whole := linktest.Event(linktest.EventLifecycle, "domain")
	huge := whole
	huge.Payload = append([]byte{0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff}, whole.Payload[8:]...)
	short := whole
	short.Payload = whole.Payload[:len(whole.Payload)-4]
	long := whole
	long.Payload = append(slices.Clone(whole.Payload), make([]byte, maxEvent)...)
	other := whole
	other.Procedure = 319
	foreign := whole
	foreign.Program = programQEMU
	for name, c := range map[string]struct {
		frame linktest.Frame
		dies  bool
	}{
		"a name longer than its message": {huge, true},
		"a message that is cut off":      {short, true},
		"no payload":                     {linktest.Frame{Program: linktest.Remote, Version: 1, Procedure: linktest.EventLifecycle, Type: linktest.Message}, true},
		"one that is larger than any":    {long, false},
		"one that nobody subscribed to":  {other, false},
		"one of another program":         {foreign, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer := newHerald()
				l := mustPipe(t, Target{}, &peer.Peer)
				told, _ := listening(t.Context(), l)
				time.Sleep(time.Second)
				all(told)
				peer.conn.Send(c.frame)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := all(told); len(got) > 0 {
					t.Errorf("told %q", got)
				}
				if !c.dies {
					mustWork(t, l)
					l.Close()
					return
				}
				if dead := mustDie(t, l, time.Second); !strings.Contains(dead.Reason, "not libvirt") {
					t.Errorf("reason %q", dead.Reason)
				}
			})
		})
	}
}

func TestCallsAreCounted(t *testing.T) {
	var counted []string
	h := startHost(t, &linktest.Peer{}, nil)
	h.target.Count = func(procedure string) { counted = append(counted, procedure) }
	l := mustDial(t, h.target)
	counted = nil
	mustWork(t, l)
	mustWork(t, l)
	if want := []string{"ConnectGetLibVersion", "ConnectGetLibVersion"}; !slices.Equal(counted, want) {
		t.Errorf("counted %q", counted)
	}
	for procedure, kind := range answerTypes {
		if name := procedureName(procedure); strings.HasPrefix(name, "procedure") || kind == nil && quietProcedures[procedure] == "" {
			t.Errorf("procedure %d has no name", procedure)
		}
	}
}
