// SPDX-License-Identifier: Apache-2.0

//go:build live

package freeze

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/leak"
)

const (
	// found is when a silent host is found out at the latest, by the keepalives of a link as it is by default.
	found = (link.DefaultKeepaliveCount + 2) * link.DefaultKeepaliveInterval
	// freedWithin a killed link, and endedWithin a context.
	freedWithin, endedWithin = time.Second, 100 * time.Millisecond
	// patience of the calls that are to be ended by their context.
	patience = 300 * time.Millisecond
	// crowd is more calls at once than a link carries.
	crowd = 2 * link.MaxInFlight
	// soon is for what happens by itself, at once.
	soon = 20 * time.Second
)

var stuck = []string{"stuck-a", "stuck-b", "stuck-c"}

func TestFreeze(t *testing.T) {
	descriptors := leak.OpenFiles(t)
	t.Run("H1: a host falls silent in the middle of an upload: its callers are freed within 1 s, and other hosts go on", func(t *testing.T) {
		w := newWorld(t)
		defer w.relay.thaw() // whatever is stuck is to end with the test
		own := newOwnLink(w)
		stop := w.operate()
		for _, name := range stuck {
			w.create(name, frozenHost)
		}
		w.untilFrozen(own)
		created := time.Now()
		w.create("healthy", healthyHost)

		var freed tally
		own.killedByHand(&freed)
		w.killedByKeepalives(&freed)
		w.awaitReady("healthy")
		fmt.Printf("figure: freeze: %d calls freed in %d ms, the other host's Proxy Ready in %.1f s\n",
			freed.calls, freed.longest.Milliseconds(), time.Since(created).Seconds())
		if freed.longest > freedWithin {
			t.Errorf("the last of %d calls came back %s after its link was killed: %s", freed.calls, freed.longest, freed.last)
		}
		for _, name := range stuck {
			if w.isReady(name) {
				t.Errorf("Proxy %s is Ready on a host that answers nothing", name)
			}
		}

		w.relay.thaw()
		for _, name := range stuck {
			w.awaitReady(name)
		}
		w.remove(append(stuck, "healthy")...)
		w.nothingLeft()
		stop()
	})
	if left := leak.OpenFiles(t) - descriptors; left > 0 {
		t.Errorf("%d descriptors are left", left)
	}
}

// tally counts calls that the death of their link freed.
type tally struct {
	calls int
	// longest is what the last one took, counted from the death; last says which it was.
	longest time.Duration
	last    string
}

func (f *tally) add(calls int, took time.Duration, last string) {
	f.calls += calls
	if took > f.longest {
		f.longest, f.last = took, last
	}
}

// untilFrozen waits until the relay froze, in the middle of an upload, and both uploads stand in their TCP connections.
func (w *world) untilFrozen(own *ownLink) {
	w.t.Helper()
	select {
	case <-w.relay.frozen:
	case <-time.After(boots):
		w.t.Fatal("no upload came so far that the relay froze")
	}
	if conns := w.relay.all(); len(conns) != 3 || conns[0].bytes() > conns[2].bytes() || conns[1].bytes() > conns[2].bytes() {
		w.t.Fatalf("%d connections through the relay; want the test's own, the operator's, and one with its upload", len(conns))
	}
	own.pour()
	w.until(soon, "both uploads to stand in their TCP connections", func(context.Context) (bool, error) { return stuckWriters() == 2, nil })
}

// stuckWriters are the links whose writing goroutine waits for the kernel to take more.
func stuckWriters() (n int) {
	all := make([]byte, 8<<20)
	for _, g := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(g, "internal/poll.(*FD).Write(") && strings.Contains(g, "/internal/link.") {
			n++
		}
	}
	return n
}

// killedByKeepalives waits until the operator's links to the silent host are dead, and all calls that waited on them came back.
func (w *world) killedByKeepalives(f *tally) {
	w.t.Helper()
	// The operator's own link, in use by others at the same time: more calls than it has slots.
	var users sync.WaitGroup
	defer users.Wait()
	for range crowd {
		users.Go(func() { _, _ = w.backend.Volumes(w.t.Context()) }) // the recorder notes how it ended
	}
	endsWithItsContext(w.t, "a call over the operator's link", func(ctx context.Context) error {
		_, err := w.backend.Volumes(ctx)
		return err
	})
	conns := w.relay.all()
	shared, dedicated := conns[1], conns[2]
	deadline := w.relay.frozenAt.Add(found + freedWithin)
	w.until(time.Until(deadline), "the operator's links to be found dead", func(context.Context) (bool, error) {
		_, one := shared.killed()
		_, other := dedicated.killed()
		return one && other, nil
	})
	for _, l := range []struct {
		*conn
		dedicated bool
		atLeast   int // calls: of the crowd and of each Proxy; the upload
	}{{shared, false, crowd + len(stuck)}, {dedicated, true, 1}} {
		at, _ := l.killed()
		freed := w.freed(at, l.dedicated)
		if len(freed) < l.atLeast {
			w.t.Errorf("only %d calls waited on the link, not %d: %+v", len(freed), l.atLeast, freed)
		}
		for _, c := range freed {
			f.add(1, c.end.Sub(l.seenClosed)+lookEvery, c.what+" of the operator")
		}
	}
}

// freed are the calls that waited on a link when it was killed, once all of them came back.
func (w *world) freed(at time.Time, dedicated bool) (all []call) {
	w.t.Helper()
	w.until(soon, "the calls on a dead link to come back", func(context.Context) (bool, error) {
		all = w.calls.underWay(at, dedicated)
		for _, c := range all {
			if c.end.IsZero() {
				return false, nil
			}
		}
		return true, nil
	})
	for _, c := range all {
		if c.err == nil {
			w.t.Errorf("%s over a dead link succeeded", c.what)
		}
	}
	return all
}

// endsWithItsContext makes a call that nothing answers. It is late by what it comes back after a goroutine that waits for nothing but the
// context: on a busy machine that one is late, too.
func endsWithItsContext(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan time.Time, 1)
	go func() {
		<-ctx.Done()
		ended <- time.Now()
	}()
	err := call(ctx)
	now := time.Now()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s ended by something else than its context: %v", what, err)
		return
	}
	if late := now.Sub(<-ended); late > endedWithin {
		t.Errorf("%s came back %s after its context ended", what, late)
	}
}

// ownLink is a link of the test's own to the silent host, with an upload on it.
type ownLink struct {
	*link.Link
	w     *world
	pour  func()
	users sync.WaitGroup

	mu   sync.Mutex
	last time.Time // the last call's return
	n    int
}

// ownVolume is uploaded into over the test's own link; before is what is sent before the freeze, of ownBytes.
const ownVolume, ownBytes, before = "egress-freeze-own", 64 << 20, 4 << 20

func newOwnLink(w *world) *ownLink {
	w.t.Helper()
	if out, err := w.silent.Virsh(w.t.Context(), "vol-create-as", w.silent.PoolName, ownVolume, fmt.Sprint(ownBytes), "--format", "raw"); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	alias, _, _ := strings.Cut(w.silent.SSHAddress, ":")
	l, err := link.Dial(w.t.Context(), link.Target{Socket: w.silent.Socket, Hop: link.Hop{
		Address: w.relay.address(), User: w.silent.User, KnownHosts: w.silent.KnownHostsFile, HostKeyAlias: alias,
		Auth: link.Auth{KeyName: w.silent.KeyFile, Key: func() ([]byte, error) { return os.ReadFile(w.silent.KeyFile) }},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	poured := make(chan struct{})
	own := &ownLink{Link: l, w: w, pour: sync.OnceFunc(func() { close(poured) })}
	w.t.Cleanup(own.pour)
	source := io.MultiReader(io.LimitReader(rand.Reader, before), waiting(poured), io.LimitReader(rand.Reader, ownBytes-before))
	own.use(func(ctx context.Context) error {
		return l.Upload(ctx, golibvirt.StorageVol{Pool: w.silent.PoolName, Name: ownVolume, Key: ownVolume}, source, ownBytes, false)
	})
	return own
}

// waiting is an empty reader that ends when the channel is closed.
type waiting <-chan struct{}

func (w waiting) Read([]byte) (int, error) { <-w; return 0, io.EOF }

// use makes a call that the end of the link has to end.
func (o *ownLink) use(call func(context.Context) error) {
	o.n++
	o.users.Go(func() {
		err := call(o.w.t.Context())
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = time.Now()
		var dead *link.DeadError
		if !errors.As(err, &dead) {
			o.w.t.Errorf("a call on a killed link ended with %T %v", err, err)
		}
	})
}

// killedByHand closes the link while calls wait on it, until all of them came back.
func (o *ownLink) killedByHand(f *tally) {
	t := o.w.t
	t.Helper()
	ask := func(ctx context.Context) error {
		return o.Do(ctx, func(c *golibvirt.Libvirt) error { _, err := c.ConnectGetLibVersion(); return err })
	}
	endsWithItsContext(t, "a call that has its turn", ask)
	for range crowd {
		o.use(ask)
	}
	endsWithItsContext(t, "a call that waits for its turn", ask)
	if err := o.Err(); err != nil {
		t.Fatalf("the link is dead before it is killed: %v", err)
	}
	start := time.Now()
	freed := make(chan struct{})
	go func() {
		defer close(freed)
		o.Close()
		if took := time.Since(start); took > endedWithin {
			t.Errorf("killing the link took %s", took)
		}
		o.users.Wait()
	}()
	select {
	case <-freed:
	case <-time.After(soon):
		o.w.relay.thaw()
		<-freed
		t.Fatalf("the calls on a killed link were not back after %s", soon)
	}
	f.add(o.n, o.last.Sub(start), "a call of the test")
}

// nothingLeft of instances and of unfinished uploads is on the hosts, once the collector's time came.
func (w *world) nothingLeft() {
	w.t.Helper()
	if _, err := w.silent.Virsh(w.t.Context(), "vol-delete", ownVolume, "--pool", w.silent.PoolName); err != nil {
		w.t.Error(err)
	}
	for _, h := range w.Hosts {
		w.until(collectedTime, "nothing to be left on "+lab.HostName(h.Number), func(ctx context.Context) (bool, error) {
			held, err := lab.Hold(ctx, h)
			return err == nil && len(held.Instances())+len(held.Loose())+len(unfinished(held)) == 0, err
		})
	}
}

// unfinished are the volumes of bases and agents that have no marker.
func unfinished(held lab.Holdings) (some []string) {
	for _, v := range held.Volumes {
		if !strings.HasSuffix(v, ".img") {
			continue
		}
		marked := false
		for _, m := range held.Volumes {
			marked = marked || strings.HasPrefix(m, v+".v")
		}
		if !marked {
			some = append(some, v)
		}
	}
	return some
}
