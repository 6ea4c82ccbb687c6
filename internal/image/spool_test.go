// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowMirror serves an image at so many bytes each tick, and counts what goes over the wire.
type slowMirror struct {
	content []byte
	pace    chan struct{} // one for each piece; closed: as fast as it goes
	piece   int
	gets    atomic.Int32
	bytes   atomic.Int64
}

func (m *slowMirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.gets.Add(1)
	w.Header().Set("ETag", `"one"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(m.content)))
	for rest := m.content; len(rest) > 0; {
		select {
		case <-m.pace:
		case <-r.Context().Done():
			return
		}
		n, err := w.Write(rest[:min(m.piece, len(rest))])
		m.bytes.Add(int64(n))
		if err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		rest = rest[n:]
	}
}

func newSlowMirror(t *testing.T, content []byte, pieces int) (*slowMirror, Source) {
	t.Helper()
	m := &slowMirror{content: content, pace: make(chan struct{}), piece: (len(content) + pieces - 1) / pieces}
	return m, Source{URL: serve(t, m.ServeHTTP), SHA256: digestOf(content)}
}

// gated is a sink that waits before it takes anything.
type gated struct {
	memory
	gate <-chan struct{}
}

func (g *gated) Write(ctx context.Context, r io.Reader, length int64, info Info) error {
	select {
	case <-g.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.memory.Write(ctx, r, length, info)
}

// numbers is content without repetition.
func numbers(n int) []byte {
	var out bytes.Buffer
	for i := 0; out.Len() < n; i++ {
		fmt.Fprintln(&out, i)
	}
	return out.Bytes()[:n]
}

func TestTwentyHostsOneDownload(t *testing.T) {
	const hosts = 20
	content := numbers(1 << 20)
	mirror, source := newSlowMirror(t, content, 16)
	depot := spooling(t, 1<<30)
	m := NewManager(Options{Depot: depot})
	defer m.Close()

	var quick, slow sync.WaitGroup
	gate := make(chan struct{})
	fetch := func(host int, sink Sink, done *sync.WaitGroup) {
		done.Add(1)
		m.Ensure(Key{Host: strconv.Itoa(host), Image: "debian"}, "proxy", func(ctx context.Context, report func(Progress)) error {
			defer done.Done()
			_, err := depot.Fetch(ctx, &Opener{}, source, sink, report)
			if err != nil {
				t.Errorf("host %d: %v", host, err)
			}
			return err
		})
	}
	sinks := make([]*memory, 0, hosts)
	stuck := &gated{gate: gate}
	fetch(0, stuck, &slow) // takes nothing until all others are ready
	for host := 1; host < hosts; host++ {
		sink := &memory{}
		sinks = append(sinks, sink)
		if host == hosts/2 { // the others come late
			for range 8 {
				mirror.pace <- struct{}{}
			}
		}
		fetch(host, sink, &quick)
	}
	close(mirror.pace)
	quick.Wait()
	close(gate)
	slow.Wait()
	for host, sink := range append(sinks, &stuck.memory) {
		if !bytes.Equal(sink.stored, content) || sink.published == nil {
			t.Errorf("sink %d has %d bytes, published %v", host, len(sink.stored), sink.published)
		}
	}
	if gets, wire := mirror.gets.Load(), mirror.bytes.Load(); gets != 1 || wire != int64(len(content)) {
		t.Errorf("%d downloads, %d bytes on the wire; want 1 with %d", gets, wire, len(content))
	}
	t.Logf("hosts: %d, downloads on the wire: %d, bytes on the wire: %d of %d", hosts, mirror.gets.Load(), mirror.bytes.Load(), len(content))
}

func TestWhoComesWhenAllIsThereDownloadsNothing(t *testing.T) {
	mirror, source := newSlowMirror(t, disk, 1)
	close(mirror.pace)
	depot := spooling(t, 1<<30)
	for range 3 {
		sink := &memory{}
		if _, err := depot.Fetch(t.Context(), &Opener{}, source, sink, nil); err != nil || !bytes.Equal(sink.stored, disk) {
			t.Errorf("%d bytes, %v", len(sink.stored), err)
		}
	}
	if _, err := depot.Fetch(t.Context(), &Opener{Scope: "another entry"}, source, &memory{}, nil); err != nil {
		t.Error(err)
	}
	if gets := mirror.gets.Load(); gets != 2 {
		t.Errorf("%d downloads, want one for each scope", gets)
	}
}

func TestADownloadThatNobodyWantsEnds(t *testing.T) {
	mirror, source := newSlowMirror(t, disk, 2)
	depot := spooling(t, 1<<30)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_, err := depot.Fetch(ctx, &Opener{}, source, &memory{}, nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that it was ended", err)
			}
		})
	}
	mirror.pace <- struct{}{}
	cancel()
	all.Wait()
	depot.spool.running.Wait() // a download that goes on would hang here
	if n := mirror.bytes.Load(); n > int64(len(disk))/2 {
		t.Errorf("%d bytes on the wire", n)
	}
}

func TestOneHostThatGivesUpEndsNoOther(t *testing.T) {
	mirror, source := newSlowMirror(t, disk, 2)
	depot := spooling(t, 1<<30)
	ctx, cancel := context.WithCancel(t.Context())
	left, stays := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := depot.Fetch(ctx, &Opener{}, source, &memory{}, nil)
		left <- err
	}()
	mirror.pace <- struct{}{}
	go func() {
		_, err := depot.Fetch(t.Context(), &Opener{}, source, &memory{}, nil)
		stays <- err
	}()
	waitFor(t, func() bool { return depot.users() == 2 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(mirror.pace)
	if err := <-stays; err != nil || mirror.gets.Load() != 1 {
		t.Errorf("%v, %d downloads", err, mirror.gets.Load())
	}
}

// users of all that the spool holds.
func (d *Depot) users() (n int) {
	d.spool.mu.Lock()
	defer d.spool.mu.Unlock()
	for _, it := range d.spool.items {
		n += it.users
	}
	return n
}

// waitFor polls, for the network is not part of a bubble of fake time.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !holds() {
		if pause(ctx, time.Millisecond) != nil {
			t.Fatal("what the test waits for does not come")
		}
	}
}

func TestABrokenDownloadIsGoneOnWith(t *testing.T) {
	content := numbers(1 << 20)
	server := &breaking{content: content, etag: `"one"`, after: []int{600_000, 0, 0, 0}}
	source := Source{URL: serve(t, server.ServeHTTP), SHA256: digestOf(content)}
	depot := spooling(t, 1<<30)
	depot.spool.worth = 0
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			sink := &memory{hideReadError: true}
			_, err := depot.Fetch(t.Context(), &Opener{}, source, sink, nil)
			wantError(t, err, Transient, "after 600000 of 1048576 bytes")
			sink.wrote(t, "write", "discard")
		})
	}
	all.Wait()
	t.Run("X5: the next attempt asks for the rest alone", func(t *testing.T) {
		sink := &memory{}
		if _, err := depot.Fetch(t.Context(), &Opener{}, source, sink, nil); err != nil || !bytes.Equal(sink.stored, content) {
			t.Errorf("%d bytes, %v", len(sink.stored), err)
		}
		rest := "bytes=600000-"
		server.asked(t, "", rest, rest, rest, rest)
	})
}

func TestFewBrokenDownloadsAreKept(t *testing.T) {
	content := numbers(1 << 20)
	depot := spooling(t, 1<<30)
	fail := func() {
		server := &breaking{content: content, etag: `"one"`, after: []int{600_000, 0, 0, 0}}
		_, err := depot.Fetch(t.Context(), &Opener{}, Source{URL: serve(t, server.ServeHTTP), SHA256: digestOf(content)}, &memory{}, nil)
		wantError(t, err, Transient, "after 600000 of 1048576 bytes")
	}
	kept := func() int {
		depot.spool.running.Wait()
		depot.spool.mu.Lock()
		defer depot.spool.mu.Unlock()
		return len(depot.spool.items)
	}
	fail()
	if n := kept(); n != 0 {
		t.Errorf("%d are kept of which little has come", n)
	}
	depot.spool.worth = 0
	for range spoolParked + 2 {
		fail()
	}
	if n := kept(); n != spoolParked {
		t.Errorf("%d are kept, want %d", n, spoolParked)
	}
}

func TestNothingWrongIsPublishedFromTheSpool(t *testing.T) {
	mirror, source := newSlowMirror(t, disk, 1)
	close(mirror.pace)
	source.SHA256 = some256
	sink := &memory{}
	_, err := spooling(t, 1<<30).Fetch(t.Context(), &Opener{}, source, sink, nil)
	wantError(t, err, Permanent, "expected sha256 "+some256)
	sink.wrote(t, "write", "discard")
}

func TestTheSpoolIsBounded(t *testing.T) {
	size := int64(len(disk))
	depot := spooling(t, 2*size+10)
	image := func(name string) Source {
		content := append(bytes.Clone(disk[:size-1]), name...)
		return Source{URL: serve(t, contents(content)), SHA256: digestOf(content)}
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, err := depot.Fetch(t.Context(), &Opener{}, image(name), &memory{}, nil); err != nil {
			t.Error(err)
		}
		depot.spool.mu.Lock()
		if depot.spool.used > depot.spool.limit || len(depot.spool.items) > 2 {
			t.Errorf("%d images, %d of %d bytes", len(depot.spool.items), depot.spool.used, depot.spool.limit)
		}
		depot.spool.mu.Unlock()
	}
	t.Run("what has no room is streamed without it", func(t *testing.T) {
		large := bytes.Repeat(disk, 3)
		sink := &memory{}
		source := Source{URL: serve(t, contents(large)), SHA256: digestOf(large)}
		if _, err := depot.Fetch(t.Context(), &Opener{}, source, sink, nil); err != nil || !bytes.Equal(sink.stored, large) {
			t.Errorf("%d bytes, %v", len(sink.stored), err)
		}
	})
}

func TestWhatNobodyTakesIsDroppedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSpool(t.TempDir(), 1<<20, nobody{})
		if err != nil {
			t.Fatal(err)
		}
		it := &item{key: "a", complete: true, users: 1, reserved: 100}
		it.progress.init()
		if it.file, err = s.create(); err != nil {
			t.Fatal(err)
		}
		s.items["a"], s.used = it, 100
		s.leave(it)
		time.Sleep(spoolKeep - time.Second)
		synctest.Wait()
		kept := func() (int64, int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.used, len(s.items)
		}
		if used, _ := kept(); used != 100 {
			t.Error("dropped too soon")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if used, images := kept(); used != 0 || images != 0 {
			t.Errorf("%d bytes, %d images are kept", used, images)
		}
		s.close()
	})
}

func TestASpoolThatCannotBe(t *testing.T) {
	_, err := NewDepot(DepotOptions{SpoolDir: "/nonexistent/spool", SpoolBytes: 1 << 30})
	if err == nil {
		t.Error("no error")
	}
	d := spooling(t, 1<<30)
	d.Close()
	_, err = d.Fetch(t.Context(), &Opener{}, Source{URL: "https://127.0.0.1:1/x"}, &memory{}, nil)
	wantError(t, err, Transient, "shutting down")
}
