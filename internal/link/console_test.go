// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// guest is a peer with one console.
type guest struct {
	linktest.Peer
	opened chan heldCall
	words  chan linktest.Frame // last words from our side
}

func newGuest() *guest {
	g := &guest{opened: make(chan heldCall, 10), words: make(chan linktest.Frame, 10)}
	g.OnCall = func(c *linktest.PeerConn, f linktest.Frame) bool {
		if f.Procedure == linktest.OpenConsole {
			g.opened <- heldCall{c, f}
		}
		return f.Procedure == linktest.OpenConsole
	}
	g.OnStream = func(_ *linktest.PeerConn, f linktest.Frame) { g.words <- f }
	return g
}

// says is a packet of what the guest says.
func (h heldCall) says(text string) {
	f := h.call
	f.Type, f.Status, f.Payload = linktest.Stream, linktest.Continue, []byte(text)
	h.conn.Send(f)
}

func (h heldCall) lastWord(status uint32, payload []byte) {
	f := h.call
	f.Type, f.Status, f.Payload = linktest.Stream, status, payload
	h.conn.Send(f)
}

// heard is a sink.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) take(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(b)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

func reading(ctx context.Context, l *Link, sink func([]byte)) chan error {
	ended := make(chan error, 1)
	go func() { ended <- l.Console(ctx, libvirt.Domain{Name: "d", ID: 7}, sink) }()
	return ended
}

func inConsole(t *testing.T, run func(t *testing.T, l *Link, g *guest, h *heard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, h := newGuest(), &heard{}
		run(t, mustPipe(t, Target{}, &g.Peer), g, h)
	})
}

func TestConsole(t *testing.T) {
	t.Run("what the guest says arrives, until it is off", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			ended := reading(t.Context(), l, h.take)
			open := <-g.opened
			open.answer()
			open.says("one ")
			open.says("two")
			mustWork(t, l)
			open.says("")
			if err := <-ended; err != nil || h.String() != "one two" {
				t.Errorf("heard %q, %v", h, err)
			}
			if last := <-g.words; last.Status != linktest.OK || last.Serial != open.call.Serial || len(last.Payload) > 0 {
				t.Errorf("our last word: %+v", last)
			}
			open.says("late")
			open.lastWord(linktest.OK, nil)
			mustWork(t, l)
			if h.String() != "one two" {
				t.Errorf("heard %q", h)
			}
		})
	})
	t.Run("the end of the context ends it alone, and the daemon is told", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := reading(ctx, l, h.take)
			open := <-g.opened
			open.answer()
			open.says("x")
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			if last := <-g.words; last.Status != linktest.Error {
				t.Errorf("our last word: %+v", last)
			}
			mustWork(t, l)
		})
	})
	t.Run("a context that ends before the daemon answered leaves no stream open", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := reading(ctx, l, h.take)
			open := <-g.opened
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
			open.answer()
			if last := <-g.words; last.Status != linktest.Error {
				t.Errorf("our last word: %+v", last)
			}
			mustWork(t, l)
			if n := len(l.slots); n != 0 {
				t.Errorf("%d calls are in flight still", n)
			}
		})
	})
	t.Run("many consoles leave room for calls", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			var all []chan error
			for range 3 * MaxInFlight {
				all = append(all, reading(t.Context(), l, h.take))
				(<-g.opened).answer()
			}
			mustWork(t, l)
			l.Close()
			for _, ended := range all {
				<-ended
			}
		})
	})
	for name, say := range map[string]func(heldCall){
		"the daemon refuses": func(open heldCall) {
			open.conn.Send(open.call.Answer(linktest.Error, linktest.ErrorPayload(55, "Active console session exists for this domain")))
		},
		"the daemon breaks off": func(open heldCall) {
			open.answer()
			open.lastWord(linktest.Error, linktest.ErrorPayload(38, "stream had I/O failure"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
				ended := reading(t.Context(), l, h.take)
				say(<-g.opened)
				var answer libvirt.Error
				if err := <-ended; !errors.As(err, &answer) {
					t.Errorf("ended with %v", err)
				}
				mustWork(t, l)
			})
		})
	}
	t.Run("the end of the link ends it", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			ended := reading(t.Context(), l, h.take)
			open := <-g.opened
			open.answer()
			open.conn.Close()
			var dead *DeadError
			if err := <-ended; !errors.As(err, &dead) {
				t.Errorf("ended with %v", err)
			}
		})
	})
	t.Run("a packet that is larger than any is dropped", func(t *testing.T) {
		inConsole(t, func(t *testing.T, l *Link, g *guest, h *heard) {
			ended := reading(t.Context(), l, h.take)
			open := <-g.opened
			open.answer()
			open.says(strings.Repeat("x", maxConsolePacket+1))
			open.says("y")
			open.says("")
			if err := <-ended; err != nil || h.String() != "y" {
				t.Errorf("heard %d bytes, %v", len(h.String()), err)
			}
			l.Close()
		})
	})
}

func TestConsoleArgs(t *testing.T) {
	got := string(consoleArgs(libvirt.Domain{Name: "abcde", UUID: libvirt.UUID{15: 9}, ID: 7}))
	want := "\x00\x00\x00\x05abcde\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x09" + "\x00\x00\x00\x07" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
