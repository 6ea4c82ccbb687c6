// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func withLength(n uint32) []byte {
	b := linktest.Frame{Program: linktest.Remote, Version: 1, Type: linktest.Reply}.Encode()
	binary.BigEndian.PutUint32(b, n)
	return b
}

func TestNotLibvirt(t *testing.T) {
	reply := linktest.Frame{Program: linktest.Remote, Version: 1, Procedure: linktest.AuthList, Type: linktest.Reply, Serial: 1}
	change := func(f func(*linktest.Frame)) []byte { c := reply; f(&c); return c.Encode() }
	for name, sent := range map[string][]byte{
		"a frame length of 0":               withLength(0),
		"a frame length of 10":              withLength(10),
		"a frame length of 27":              withLength(27),
		"a frame length above the maximum":  withLength(maxFrame + 1),
		"a frame length of 0xFFFFFFFF":      withLength(0xFFFFFFFF),
		"an HTTP server":                    []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an SSH server":                     []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"a foreign program":                 change(func(f *linktest.Frame) { f.Program = 0x12345678 }),
		"a foreign protocol version":        change(func(f *linktest.Frame) { f.Version = 2 }),
		"a call from the server":            change(func(f *linktest.Frame) { f.Type = linktest.Call }),
		"a status that does not exist":      change(func(f *linktest.Frame) { f.Status = 3 }),
		"an answer of another procedure":    change(func(f *linktest.Frame) { f.Procedure++ }),
		"an answer that says data is to go": change(func(f *linktest.Frame) { f.Status = linktest.Continue }),
	} {
		t.Run("L27: "+name+" ends the dial, which says so", func(t *testing.T) {
			h := startHost(t, &linktest.Peer{OnCall: func(c *linktest.PeerConn, _ linktest.Frame) bool {
				c.SendRaw(sent)
				return true
			}}, nil)
			_, err := Dial(t.Context(), h.target)
			var setup *SetupError
			if !errors.As(err, &setup) || !strings.Contains(err.Error(), "not libvirt: ") {
				t.Errorf("got %T %v", err, err)
			}
		})
		t.Run("L27: "+name+" ends an open link, which says so", func(t *testing.T) {
			l := mustPipe(t, Target{}, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
				if f.Procedure != linktest.GetLibVersion {
					return false
				}
				if f.Serial >= 3 && len(sent) >= headerLen { // keep to the call's serial where there is one
					b := bytes.Clone(sent)
					binary.BigEndian.PutUint32(b[20:], f.Serial)
					c.SendRaw(b)
					return true
				}
				c.SendRaw(sent)
				return true
			}})
			err := version(t.Context(), l)
			var dead *DeadError
			if !errors.As(err, &dead) || !strings.Contains(err.Error(), "not libvirt: ") {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
	t.Run("L27: a huge length allocates nothing", func(t *testing.T) {
		for _, n := range []uint32{maxFrame + 1, 1 << 30, 0xFFFFFFFF} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			g := newGuard(&scripted{r: bytes.NewReader(withLength(n))}, func() {}, time.Hour, 1)
			<-g.dead
			g.workers.Wait()
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
				t.Errorf("%d bytes for a frame length of %d", grown, n)
			}
		}
	})
	t.Run("the largest frame that can be is passed on", func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure != linktest.GetLibVersion {
				return false
			}
			a := linktest.DefaultAnswer(f)
			a.Payload = append(a.Payload, make([]byte, maxFrame-headerLen-len(a.Payload))...)
			c.Send(a)
			return true
		}})
		mustWork(t, l)
	})
}

// scripted is a connection on which all that will ever be received is known.
type scripted struct {
	r    io.Reader
	wait <-chan struct{} // before the first byte; nil not to
}

func (s *scripted) Read(p []byte) (int, error) {
	if s.wait != nil {
		<-s.wait
	}
	return s.r.Read(p)
}

func (s *scripted) Write(p []byte) (int, error) { return len(p), nil }

func TestStrayAnswers(t *testing.T) {
	stray := map[string]func(linktest.Frame) []linktest.Frame{
		"duplicate": func(call linktest.Frame) []linktest.Frame {
			a := linktest.DefaultAnswer(call)
			return []linktest.Frame{a, a, a}
		},
		"duplicate error": func(call linktest.Frame) []linktest.Frame {
			return []linktest.Frame{linktest.DefaultAnswer(call), call.Answer(linktest.Error, linktest.ErrorPayload(1, "again"))}
		},
		"unsolicited": func(call linktest.Frame) []linktest.Frame {
			other := linktest.DefaultAnswer(call)
			other.Serial += 1000
			return []linktest.Frame{other, linktest.DefaultAnswer(call), other}
		},
		"stream": func(call linktest.Frame) []linktest.Frame {
			data := call.Answer(linktest.Continue, []byte("data"))
			data.Type = linktest.Stream
			return []linktest.Frame{data, linktest.DefaultAnswer(call), data}
		},
		"event": func(call linktest.Frame) []linktest.Frame {
			const lifecycle = 318
			e := linktest.Frame{Program: linktest.Remote, Version: 1, Procedure: lifecycle, Type: linktest.Message, Payload: []byte{1, 2, 3}}
			return []linktest.Frame{e, linktest.DefaultAnswer(call)}
		},
	}
	for name, frames := range stray {
		t.Run("L28: "+name+" frames are dropped, and calls go on", func(t *testing.T) {
			var last linktest.Frame
			l := mustPipe(t, Target{}, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
				if f.Procedure != linktest.GetLibVersion {
					return false
				}
				c.Send(frames(f)...)
				if last.Serial != 0 {
					c.Send(linktest.DefaultAnswer(last)) // late: that call has ended
				}
				last = f
				return true
			}})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 50 {
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						if err := version(ctx, l); err != nil {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
		})
	}
	t.Run("L28: a late answer ends what was left of its call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hold := newHold(procClose)
			l := mustPipe(t, Target{}, &linktest.Peer{OnCall: hold.onCall})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			go stall(t.Context(), l)
			held := <-hold.calls
			if err := stall(ctx, l); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			go stall(ctx, l)
			late := <-hold.calls
			cancel()
			synctest.Wait()
			held.answer()
			late.answer()
			late.answer()
			synctest.Wait()
			if n := len(l.slots); n != 0 {
				t.Errorf("%d calls are still in flight", n)
			}
			mustWork(t, l)
		})
	})
	t.Run("L28: an upload's error, and then an answer to its end", func(t *testing.T) {
		peer := &linktest.Peer{}
		peer.OnStream = func(c *linktest.PeerConn, f linktest.Frame) {
			f.Status, f.Payload = linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrSystemError), "No space left on device")
			burst := f.Encode()
			f.Status, f.Payload = linktest.OK, nil
			for range 4 {
				burst = append(burst, f.Encode()...)
			}
			c.SendRaw(burst)
		}
		l := mustPipe(t, Target{}, peer)
		err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, endless{}, 1<<30, false)
		var answer libvirt.Error
		if !errors.As(err, &answer) || answer.Code != uint32(libvirt.ErrSystemError) {
			t.Errorf("got %v", err)
		}
	})
}

// TestLibraryIsFreed: when the connection ends the library reads the end, at any time.
func TestLibraryIsFreed(t *testing.T) {
	ours, theirs := net.Pipe()
	l := newLink(Target{}.withDefaults(), ours, func() { ours.Close() })
	theirs.Close()
	if err := l.open(t.Context()); err == nil {
		t.Error("opened on a closed connection")
	}
	l.guard.workers.Wait()
}

// FuzzGuard feeds what a peer sends, and checks that the library sees whole answers to
// its own calls only, each once.
func FuzzGuard(f *testing.F) {
	asked := []linktest.Frame{
		{Program: linktest.Remote, Version: 1, Procedure: linktest.AuthList, Serial: 1},
		{Program: linktest.Remote, Version: 1, Procedure: linktest.ConnectOpen, Serial: 2},
		{Program: linktest.Remote, Version: 1, Procedure: linktest.GetLibVersion, Serial: 3},
	}
	var all []byte
	for _, c := range asked {
		a := linktest.DefaultAnswer(c).Encode()
		f.Add(a)
		f.Add(append(a, a...))
		all = append(all, a...)
	}
	ping := linktest.Frame{Program: linktest.Keepalive, Version: 1, Procedure: linktest.Ping, Type: linktest.Message}
	f.Add(all)
	f.Add(all[:len(all)-3])
	f.Add(append(ping.Encode(), all...))
	f.Add(withLength(10))
	f.Add(withLength(0xFFFFFFFF))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, received []byte) {
		start := make(chan struct{})
		g := newGuard(&scripted{r: bytes.NewReader(received), wait: start}, func() {}, time.Hour, 1)
		c := &libraryConn{g: g}
		g.release()
		open := map[uint32]linktest.Frame{}
		for _, call := range asked {
			open[call.Serial] = call
			c.Write(call.Encode())
		}
		close(start)
		for {
			got, err := linktest.ReadFrame(c)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("the library read %v", err)
				}
				break
			}
			call, ok := open[got.Serial]
			delete(open, got.Serial)
			if !ok || got.Program != call.Program || got.Procedure != call.Procedure || got.Version != 1 ||
				got.Type != linktest.Reply || got.Status > linktest.Error {
				t.Fatalf("the library read %+v", got)
			}
		}
		g.workers.Wait()
	})
}
