// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// spoolKeep is how long a complete image that nobody takes is kept for the next host.
	spoolKeep = 30 * time.Minute
	// spoolPark is how long a download that broke off is kept for who tries again, at most spoolParked of them, and only where spoolWorth bytes
	// have come: the others start over.
	spoolPark   = 10 * time.Minute
	spoolParked = 2
	spoolWorth  = 16 << 20
	// spoolChunk is written at a time.
	spoolChunk = 256 << 10
	// spoolStep is what the copy of a packed image takes of the limit at a time: how long it will be is not known.
	spoolStep = 64 << 20
)

// errUnspooled: the spool has no room for an image that can be streamed without it.
var errUnspooled = errors.New("the image spool has no room")

// spool keeps images on the disk while hosts take them: one download of each, which no host can hold back, and which one that comes late takes from its
// start.
type spool struct {
	dir      string
	limit    int64
	worth    int64 // spoolWorth, but for tests
	observer Observer
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	used  int64
	items map[string]*item
}

func newSpool(dir string, limit int64, observer Observer) (*spool, error) {
	s := &spool{dir: dir, limit: limit, worth: spoolWorth, observer: observer, items: map[string]*item{}}
	f, err := s.create()
	if err != nil {
		return nil, fmt.Errorf("the image spool cannot use %s: %w", dir, err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, f.Close()
}

// create makes a file without a name: the disk has it back when the process ends, however it ends.
func (s *spool) create() (*os.File, error) {
	fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), s.dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, err
	}
	f, err := os.CreateTemp(s.dir, ".egress-image-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func (s *spool) close() {
	s.stop()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range slices.Collect(maps.Values(s.items)) {
		s.drop(it)
	}
}

// item is one image. What is not in its progress is guarded by the spool's lock.
type item struct {
	key      string
	progress spooled
	file     *os.File
	reserved int64
	users    int
	filling  bool
	complete bool
	dropped  bool
	parked   bool // it broke off, and waits for who tries again
	cancel   context.CancelFunc
	idle     time.Time // since when nobody takes it
	expiry   *time.Timer

	// Of the goroutine that fills it, and of nobody's while it is parked.
	written int64
	broken  *stream
}

func spoolKey(o *Opener, source Source) string {
	return strings.Join([]string{o.Scope, source.URL, source.Pin(), string(source.Format), strconv.FormatInt(o.maxBytes(), 10)}, "\n")
}

// join takes part in the download of a source, or starts it, and returns when the length of the image is known.
func (s *spool) join(ctx context.Context, o *Opener, source Source, report func(Progress)) (*lease, error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, transient(context.Canceled, "the operator is shutting down")
	}
	key := spoolKey(o, source)
	it := s.items[key]
	if it == nil {
		it = &item{key: key}
		it.progress.init()
		s.items[key] = it
		s.start(it, o, source)
	}
	it.users++
	if it.expiry != nil {
		it.expiry.Stop()
	}
	if it.parked {
		it.parked = false
		s.start(it, o, source)
	}
	s.mu.Unlock()

	l := &lease{spool: s, item: it, ctx: ctx, attempt: it.progress.join()}
	if err := l.begin(report); err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

func (s *spool) start(it *item, o *Opener, source Source) {
	ctx, cancel := context.WithCancel(s.ctx)
	it.filling, it.cancel = true, cancel
	s.running.Go(func() {
		defer cancel()
		broken, err := s.fill(ctx, it, o, source)
		s.mu.Lock()
		defer s.mu.Unlock()
		it.filling, it.complete, it.broken = false, err == nil, broken
		switch {
		case broken != nil && !it.dropped:
			it.progress.breakOff(err)
			s.park(it)
			return
		case err != nil:
			it.progress.fail(err)
		}
		switch {
		case err != nil || it.dropped:
			s.drop(it)
		case it.users == 0:
			s.keep(it, spoolKeep)
		}
	})
}

// leave gives up one use. A download that nobody wants ends.
func (s *spool) leave(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it.users--
	switch {
	case it.users > 0:
	case it.dropped:
		s.drop(it)
	case it.complete:
		s.keep(it, spoolKeep)
	case it.filling && !it.progress.isFinished():
		it.cancel()
		s.drop(it)
	}
}

// keep holds on to an image that nobody takes for a while; the caller holds the lock.
func (s *spool) keep(it *item, d time.Duration) {
	it.idle = time.Now()
	it.expiry = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if it.complete && it.users == 0 || it.parked {
			s.drop(it)
		}
	})
}

// park keeps a download that broke off, instead of the one that has been kept for longest where there are too many. Who takes part in it is told, and
// leaves. The caller holds the lock.
func (s *spool) park(it *item) {
	it.parked = true
	s.keep(it, spoolPark)
	var parked []*item
	for _, other := range s.items {
		if other.parked {
			parked = append(parked, other)
		}
	}
	if len(parked) > spoolParked {
		s.drop(slices.MinFunc(parked, func(a, b *item) int { return a.idle.Compare(b.idle) }))
	}
}

// drop forgets an image; its room is free when nobody reads or writes it any more. The caller holds the lock.
func (s *spool) drop(it *item) {
	if s.items[it.key] == it {
		delete(s.items, it.key)
	}
	it.dropped, it.parked = true, false
	if it.expiry != nil {
		it.expiry.Stop()
	}
	if !it.filling && it.broken != nil { // while it is filled, that is not ours to look at
		it.broken.close()
		it.broken = nil
	}
	if it.users > 0 || it.filling || it.file == nil {
		return
	}
	_ = it.file.Close() // it has no name, and was only read
	it.file = nil
	s.used -= it.reserved
	it.reserved = 0
	s.observer.Spooled(s.used)
}

// reserve takes room for an image, from those that nobody takes where it must be.
func (s *spool) reserve(it *item, bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.reserved+bytes > s.limit {
		return false
	}
	for s.used+bytes > s.limit {
		oldest := s.oldest()
		if oldest == nil {
			return false
		}
		s.drop(oldest)
	}
	s.used += bytes
	it.reserved += bytes
	s.observer.Spooled(s.used)
	return true
}

// trim gives back what an image did not need after all.
func (s *spool) trim(it *item, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= it.reserved - bytes
	it.reserved = bytes
	s.observer.Spooled(s.used)
}

func (s *spool) oldest() *item {
	var oldest *item
	for _, it := range s.items {
		if (it.complete || it.parked) && it.users == 0 && (oldest == nil || it.idle.Before(oldest.idle)) {
			oldest = it
		}
	}
	return oldest
}
