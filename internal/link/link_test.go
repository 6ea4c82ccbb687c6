// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func TestDefaults(t *testing.T) {
	for _, v := range []time.Duration{0, -time.Second} {
		t.Run("L1: a keepalive interval of "+v.String()+" means the default", func(t *testing.T) {
			h := startHost(t, &linktest.Peer{}, nil)
			h.target.KeepaliveInterval = v
			mustWork(t, mustDial(t, h.target))
			h.target.KeepaliveCount, h.target.DialTimeout, h.target.CallTimeout = int(v), v, v
			mustWork(t, mustDial(t, h.target))
			got := h.target.withDefaults()
			if got.KeepaliveInterval != DefaultKeepaliveInterval || got.KeepaliveCount != DefaultKeepaliveCount ||
				got.DialTimeout != DefaultDialTimeout || got.CallTimeout != DefaultCallTimeout {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	t.Run("M20: a server that stops answering is found over SSH", func(t *testing.T) {
		h := startHost(t, &linktest.Peer{}, nil)
		h.target.KeepaliveInterval, h.target.KeepaliveCount = 20*time.Millisecond, 3
		l := mustDial(t, h.target)
		mustWork(t, l)
		h.peer.Silent.Store(true)
		if dead := mustDie(t, l, 10*time.Second); !strings.Contains(dead.Reason, "keepalives") {
			t.Errorf("reason %q", dead.Reason)
		}
	})
	t.Run("M20: silence between calls is found within the configured bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			target := Target{KeepaliveInterval: 5 * time.Second, KeepaliveCount: 3}
			peer := &linktest.Peer{}
			l := mustPipe(t, target, peer)
			time.Sleep(10 * time.Minute)
			if l.Err() != nil || peer.Pings.Load() == 0 {
				t.Fatalf("after ten idle minutes: %v, %d pings", l.Err(), peer.Pings.Load())
			}
			peer.Silent.Store(true)
			start := time.Now()
			<-l.Done()
			if took, bound := time.Since(start), 25*time.Second; took > bound {
				t.Errorf("found after %v, bound %v", took, bound)
			}
		})
	})
	t.Run("M20: the daemon's own pings are answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHold(procClose)
			peer := &linktest.Peer{OnCall: h.onCall}
			l := mustPipe(t, Target{}, peer)
			go stall(t.Context(), l)
			held := <-h.calls
			held.conn.Send(linktest.Frame{Program: linktest.Keepalive, Version: 1, Procedure: linktest.Ping, Type: linktest.Message})
			synctest.Wait()
			if peer.Pongs.Load() != 1 {
				t.Errorf("%d pongs", peer.Pongs.Load())
			}
			held.answer()
		})
	})
}

func TestCallers(t *testing.T) {
	t.Run("T4: a caller that gives up ends alone", func(t *testing.T) {
		hold := newHold(procClose)
		h := startHost(t, &linktest.Peer{OnCall: hold.onCall}, nil)
		l := mustDial(t, h.target)
		patient := make(chan error, 1)
		go func() { patient <- stall(t.Context(), l) }()
		first := <-hold.calls
		ctx, cancel := context.WithCancel(t.Context())
		impatient := make(chan error, 1)
		go func() { impatient <- stall(ctx, l) }()
		second := <-hold.calls
		cancel()
		if err := <-impatient; !errors.Is(err, context.Canceled) {
			t.Errorf("the impatient caller got %v", err)
		}
		mustWork(t, l)
		second.answer()
		first.answer()
		if err := <-patient; err != nil {
			t.Errorf("the patient caller got %v", err)
		}
		mustWork(t, l)
	})
	t.Run("T4: a dead link is an error of its own type, and nothing of the daemon's", func(t *testing.T) {
		h := startHost(t, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure != linktest.StorageVolUpload {
				return false
			}
			c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrNoDomain), "no such domain")))
			return true
		}}, nil)
		l := mustDial(t, h.target)
		err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, strings.NewReader("x"), 1, false)
		if !libvirt.IsNotFound(err) {
			t.Fatalf("the upload's own error is the daemon's; got %v", err)
		}
		for _, err := range []error{l.Err(), version(t.Context(), l)} {
			var dead *DeadError
			var answer libvirt.Error
			if !errors.As(err, &dead) || errors.As(err, &answer) || libvirt.IsNotFound(err) {
				t.Errorf("got %T %v", err, err)
			}
		}
	})
	t.Run("the daemon's own error is passed on", func(t *testing.T) {
		h := startHost(t, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure != linktest.GetLibVersion {
				return false
			}
			c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrNoDomain), "no such domain")))
			return true
		}}, nil)
		if err := version(t.Context(), mustDial(t, h.target)); !libvirt.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a connection cut under calls frees them all", func(t *testing.T) {
		hold := newHold(procClose)
		h := startHost(t, &linktest.Peer{OnCall: hold.onCall}, nil)
		l := mustDial(t, h.target)
		errs := make(chan error, 10)
		for range cap(errs) {
			go func() { errs <- stall(t.Context(), l) }()
		}
		for range MaxInFlight {
			<-hold.calls
		}
		h.server.Cut()
		for range cap(errs) {
			var dead *DeadError
			if err := <-errs; !errors.As(err, &dead) {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("a panic in a call is its error", func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{})
		err := l.Do(t.Context(), func(*libvirt.Libvirt) error { panic("makeslice") })
		if err == nil || !strings.Contains(err.Error(), "makeslice") {
			t.Errorf("got %v", err)
		}
		mustWork(t, l)
	})
	t.Run("the library's own streams are refused", func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{})
		err := l.Do(t.Context(), func(c *libvirt.Libvirt) error {
			return c.StorageVolUpload(libvirt.StorageVol{}, strings.NewReader("x"), 0, 1, 0)
		})
		if err == nil || !strings.Contains(err.Error(), "Link.Upload") {
			t.Errorf("got %v", err)
		}
	})
}

func TestInFlight(t *testing.T) {
	const most = 4
	t.Run("X3: at most 4 calls are in flight, and keepalives pass them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hold := newHold(procClose)
			peer := &linktest.Peer{OnCall: hold.onCall}
			l := mustPipe(t, Target{CallTimeout: time.Hour}, peer)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if err := stall(t.Context(), l); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if got := len(hold.calls); got != most {
				t.Errorf("%d calls reached the daemon, of which none is answered", got)
			}
			time.Sleep(time.Minute)
			if peer.Pings.Load() == 0 || l.Err() != nil {
				t.Errorf("%d pings in a minute, link: %v", peer.Pings.Load(), l.Err())
			}
			for range 20 {
				(<-hold.calls).answer()
				synctest.Wait()
				if got := len(hold.calls); got > most {
					t.Errorf("%d calls at once", got)
				}
			}
			wg.Wait()
		})
	})
	t.Run("X3: a call whose caller has gone keeps its place until it is answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hold := newHold(procClose)
			l := mustPipe(t, Target{}, &linktest.Peer{OnCall: hold.onCall})
			ctx, cancel := context.WithCancel(t.Context())
			for range 3 {
				go stall(ctx, l)
			}
			synctest.Wait()
			cancel()
			for range 2 {
				go stall(t.Context(), l)
			}
			synctest.Wait()
			if got := len(hold.calls); got != most {
				t.Fatalf("%d calls reached the daemon", got)
			}
			(<-hold.calls).answer() // late, to nobody
			synctest.Wait()
			if got := len(hold.calls); got != most {
				t.Errorf("%d calls wait at the daemon after a late answer", got)
			}
			if l.Err() != nil {
				t.Error(l.Err())
			}
		})
	})
	t.Run("a link whose every call was given up dies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := mustPipe(t, Target{CallTimeout: time.Minute}, &linktest.Peer{OnCall: newHold(procClose).onCall})
			errs := make(chan error, most)
			for range most {
				go func() { errs <- stall(t.Context(), l) }()
			}
			for range most {
				var dead *DeadError
				if err := <-errs; !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &dead) {
					t.Errorf("got %v", err)
				}
			}
			if l.Err() == nil {
				t.Error("it lives on, of no use to anybody")
			}
		})
	})
}

// H1 in small; the row itself is shown on the real host.
func TestFrozenHost(t *testing.T) {
	hold := newHold(procClose)
	h := startHost(t, &linktest.Peer{OnCall: hold.onCall}, nil)
	relay := linktest.NewRelay(t, h.server.Addr, 32<<10)
	target := h.target
	target.Address, target.HostKeyAlias = relay.Addr, "kvm"
	target.KnownHosts = aliasFor(t, h, "kvm")
	l := mustDial(t, target)
	target.dialer.Control = smallSendBuffer // or all that the SSH window lets out has room in the kernel, and no writer is stuck
	bulk := mustDial(t, target)

	ended := make(chan error, 10)
	source := &counting{}
	go func() {
		ended <- bulk.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, source, 1<<40, false)
	}()
	for range 3 {
		go func() { ended <- stall(t.Context(), l) }()
		<-hold.calls
	}
	for relay.Carried() < 1<<20 {
		if bulk.Err() != nil {
			t.Fatal(bulk.Err())
		}
		time.Sleep(time.Millisecond)
	}
	relay.Freeze()

	ctx, cancel := context.WithCancel(t.Context())
	single := make(chan error, 1)
	go func() { single <- version(ctx, l) }()
	cancel()
	mustEnd(t, single, 100*time.Millisecond)

	source.mustStop(t) // the buffers are full, and the writer is stuck
	deadline := time.Now().Add(time.Second)
	go l.Close()
	go bulk.Close() // beside the test, for it may block
	for range 4 {
		var dead *DeadError
		if err := mustEnd(t, ended, time.Until(deadline)); !errors.As(err, &dead) {
			t.Errorf("got %v", err)
		}
	}
}

func smallSendBuffer(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10) }); failed != nil {
		return failed
	}
	return err
}

// M6 in small; the row itself is shown on the real host.
func TestPeerClosesRightAfterOpen(t *testing.T) {
	h := startHost(t, &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
		if f.Procedure != linktest.ConnectOpen {
			return false
		}
		c.Send(linktest.DefaultAnswer(f))
		c.Close()
		return true
	}}, nil)
	for range 100 {
		l, err := Dial(t.Context(), h.target)
		if err != nil {
			var dialErr *DialError
			if !errors.As(err, &dialErr) {
				t.Fatalf("got %T %v", err, err)
			}
			continue
		}
		mustDie(t, l, 5*time.Second)
		var dead *DeadError
		if err := version(t.Context(), l); !errors.As(err, &dead) {
			t.Fatalf("a call on the dead link got %v", err)
		}
	}
}

func mustEnd(t *testing.T, ended <-chan error, within time.Duration) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(within):
		t.Fatalf("nothing ended within %v", within)
		return nil
	}
}

// counting is endless, and knows how often it was read.
type counting struct {
	endless
	reads atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.endless.Read(p)
}

func (c *counting) mustStop(t *testing.T) {
	t.Helper()
	last, since, deadline := int64(-1), time.Now(), time.Now().Add(20*time.Second)
	for time.Since(since) < 50*time.Millisecond {
		if now := c.reads.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("it is read on and on")
		}
		time.Sleep(time.Millisecond)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
