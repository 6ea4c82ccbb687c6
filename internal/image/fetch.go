// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// discardTimeout bounds the clean-up after a failed fetch, which goes on when the fetch's own context has ended.
const discardTimeout = 30 * time.Second

// Sink is where one fetch puts one image. Its methods are called one after another. Errors that are *Error keep their kind.
type Sink interface {
	// Write stores length bytes of r under a name that is new and that nobody uses yet.
	Write(ctx context.Context, r io.Reader, length int64, info Info) error
	// Publish makes what was written visible, in one step.
	Publish(ctx context.Context, result Result) error
	// Discard removes what Write made, and nothing else; it is called after Write or Publish failed, or the content was found wrong.
	Discard(ctx context.Context) error
}

// content is an image that is to be stored: a stream, or the spool's copy of one.
type content interface {
	io.Reader
	// result verifies what was read.
	result() (Result, error)
}

// Fetch brings a source to a sink: it opens the source, looks at its header, writes and hashes, compares the digest, and publishes.
// Where a step fails, nothing is published, and what was written is discarded. report, if not nil, is called with how far it is, by one goroutine
// at a time.
//
// Several fetches of one source in one scope are one download, where the depot has a spool with room for the image; a packed image needs the spool.
func (d *Depot) Fetch(ctx context.Context, o *Opener, source Source, sink Sink, report func(Progress)) (Result, error) {
	if report == nil {
		report = func(Progress) {}
	}
	own := *o
	own.received, own.unpacking, own.hangs = d.observer.Received, d.unpacking, d.hangs
	through, err := d.spools(ctx, &own, source)
	if err != nil {
		return Result{}, err
	}
	if through {
		result, err := d.fetchSpooled(ctx, &own, source, sink, report)
		if !errors.Is(err, errUnspooled) {
			return result, err
		}
	}
	s, err := own.stream(ctx, source)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	if s.unpacked != nil {
		return Result{}, permanent("give the operator a folder for its image spool, or publish the image unpacked",
			"image source %s: is packed with %s, and is unpacked in the image spool, which is off", source, s.unpacked.name)
	}
	return store(ctx, source, sink, s, s.info, s.size, report)
}

// spools says whether a source goes through the spool. A file of this machine does so only where it is packed: each host reads it by itself.
func (d *Depot) spools(ctx context.Context, o *Opener, source Source) (bool, error) {
	if d.spool == nil || !strings.HasPrefix(source.URL, "file:") {
		return d.spool != nil, nil
	}
	b, err := o.open(ctx, source)
	if err != nil {
		return false, err
	}
	p, err := packingOf(bufio.NewReader(b))
	return p != nil, errors.Join(err, b.Close())
}

func (d *Depot) fetchSpooled(ctx context.Context, o *Opener, source Source, sink Sink, report func(Progress)) (Result, error) {
	l, err := d.spool.join(ctx, o, source, report)
	if err != nil {
		return Result{}, err
	}
	defer l.leave()
	return store(ctx, source, sink, l, l.info, l.size, report)
}

// store gives the sink the whole content, and publishes it when it was found right.
func store(ctx context.Context, source Source, sink Sink, from content, info Info, size int64, report func(Progress)) (Result, error) {
	m := &meter{from: from, total: size, report: report}
	result, err := write(ctx, source, sink, m, info)
	if err == nil {
		err = sink.Publish(ctx, result)
	}
	if err != nil {
		return Result{}, discard(ctx, sink, err)
	}
	return result, nil
}

func write(ctx context.Context, source Source, sink Sink, m *meter, info Info) (Result, error) {
	err := sink.Write(ctx, m, m.total, info)
	if err := m.err(); err != nil {
		return Result{}, err // the sink may know no more than that its stream broke
	}
	if err != nil {
		return Result{}, err
	}
	if m.done != m.total {
		return Result{}, transient(nil, "image source %s: only %d of %d bytes were stored", source, m.done, m.total)
	}
	return m.from.result()
}

func discard(ctx context.Context, sink Sink, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if left := sink.Discard(ctx); left != nil {
		return &Error{Kind: KindOf(err), Message: fmt.Sprintf("%v (what was stored of it could not be removed, and is collected later: %v)", err, left), Err: err}
	}
	return err
}

// meter counts what a sink takes, and keeps the reader's own error, which the far end of an upload may replace by another.
type meter struct {
	from        content
	done, total int64
	report      func(Progress)
	// failure is set by the reading goroutine, and may be looked at while that still runs.
	failure atomic.Pointer[error]
}

// err is the reader's own error so far.
func (m *meter) err() error {
	if failure := m.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Read passes on what it reads.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.done += int64(n)
	if n > 0 {
		m.report(Progress{Step: StepStoring, Done: m.done, Total: m.total})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		m.failure.Store(&err)
	}
	return n, err
}
