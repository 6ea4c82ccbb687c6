// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

var errStalled = errors.New("stalled")

const (
	// maxResumes is how often the rest is asked for without a new byte, before the body gives up; a stall is resumed once.
	maxResumes = 3
	// resumePause grows with each try; all of them are over within a second.
	resumePause = 150 * time.Millisecond
)

// body gives exactly the declared length, or an error. Where a server breaks off, it asks for the rest.
type body struct {
	source Source
	opener *Opener
	url    *url.URL
	ctx    context.Context
	stall  time.Duration

	length, done int64
	seen         version
	// blind: it was resumed although nothing says that the file is still the same. The digest decides.
	blind bool

	content io.ReadCloser // nil between two answers
	skip    int64         // of content: what we have already
	end     context.CancelCauseFunc
	cause   func() error
	hung    func() // notes that the file system hangs; nil for a server

	tries  int
	stalls int
	err    error
}

// ask asks for what is still to come.
func (b *body) ask() error {
	ctx, end := context.WithCancelCause(b.ctx)
	response, err := b.opener.get(ctx, b.source, b.url, b.done, b.seen)
	if err != nil {
		end(nil)
		return err
	}
	if err := b.take(response); err != nil {
		end(nil)
		return errors.Join(err, response.Body.Close())
	}
	b.content, b.end, b.cause = response.Body, end, func() error { return context.Cause(ctx) }
	return nil
}

// take looks at whether an answer continues what we have.
func (b *body) take(response *http.Response) error {
	now := versionOf(response)
	if b.done == 0 {
		return b.start(response, now)
	}
	switch response.StatusCode {
	case http.StatusPartialContent:
		start, total, ok := rangeStart(response.Header.Get("Content-Range"))
		if !ok || start > b.done {
			return transient(nil, "image source %s: the server answers with another range than was asked for", b.source)
		}
		if total >= 0 && total != b.length || b.seen.differs(now) {
			return b.changed()
		}
		b.skip = b.done - start
	case http.StatusOK: // it ignores Range, or the file is another one
		if response.ContentLength != b.length || b.seen.differs(now) || b.seen.known() && !now.known() {
			return b.changed()
		}
		b.skip = b.done
	case http.StatusRequestedRangeNotSatisfiable:
		return b.changed()
	default:
		return b.opener.statusError(b.source, response)
	}
	b.blind = b.blind || !b.seen.known()
	return nil
}

// start takes an answer as the first of its bytes; there may have been one that gave none.
func (b *body) start(response *http.Response, now version) error {
	if response.StatusCode != http.StatusOK {
		return b.opener.statusError(b.source, response)
	}
	if b.length > 0 && (response.ContentLength != b.length || b.seen.differs(now)) {
		return b.changed()
	}
	b.skip, b.length, b.seen = 0, response.ContentLength, now
	return nil
}

func (b *body) changed() error {
	return transient(errChanged, "image source %s: the server serves another file than %d bytes ago: the fetch starts over", b.source, b.done)
}

// Read is never called by two goroutines at once.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.done == b.length {
		return 0, io.EOF // whatever more there may be
	}
	if left := b.length - b.done; int64(len(p)) > left {
		p = p[:left]
	}
	for {
		n, err := b.attempt(p)
		if n > 0 {
			b.done += int64(n)
			b.tries, b.stalls = 0, 0
			if b.opener.received != nil {
				b.opener.received(n)
			}
			return n, nil
		}
		if err == nil {
			continue
		}
		if b.content != nil {
			err = b.explain(err)
			b.drop()
		}
		if !b.mayResume(err) {
			b.err = err
			return 0, err
		}
		if pauseErr := pause(b.ctx, time.Duration(b.tries-1)*resumePause); pauseErr != nil {
			b.err = transient(pauseErr, "image source %s: after %d of %d bytes the fetch was ended: %v", b.source, b.done, b.length, pauseErr)
			return 0, b.err
		}
	}
}

// attempt reads once, and asks for the rest first where the last answer broke off.
func (b *body) attempt(p []byte) (int, error) {
	if b.content == nil {
		if err := b.ask(); err != nil {
			return 0, err
		}
	}
	wait := b.stall
	if b.resumable() {
		wait /= 2 // so that both waits together are one stall
	}
	timer := time.AfterFunc(wait, func() { b.end(errStalled) })
	defer timer.Stop()
	for b.skip > 0 {
		n, err := b.content.Read(p[:min(int64(len(p)), b.skip)])
		b.skip -= int64(n)
		timer.Reset(wait)
		if err != nil {
			return 0, err
		}
	}
	return b.content.Read(p)
}

// resumable says whether what a second answer gives can be told to be the same file.
func (b *body) resumable() bool {
	return b.url.Scheme != "file" && (b.seen.known() || b.source.pinned())
}

// mayResume decides after an error, and counts.
func (b *body) mayResume(err error) bool {
	if !b.resumable() || b.ctx.Err() != nil || errors.Is(err, errChanged) || KindOf(err) != Transient {
		return false
	}
	b.tries++
	if errors.Is(err, errStalled) {
		b.stalls++
	}
	return b.tries <= maxResumes && b.stalls <= 1
}

// again lets a body that gave up go on where it ended; false where that is of no use.
func (b *body) again() bool {
	if b.err == nil {
		return true
	}
	if !b.resumable() || b.ctx.Err() != nil || errors.Is(b.err, errChanged) || KindOf(b.err) != Transient {
		return false
	}
	b.err, b.tries, b.stalls = nil, 0, 0
	return true
}

func (b *body) explain(err error) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	at := fmt.Sprintf("image source %s: after %d of %d bytes", b.source, b.done, b.length)
	switch cause := b.cause(); {
	case errors.Is(cause, errStalled), errors.Is(err, errStalled):
		if b.hung != nil {
			b.hung()
		}
		return transient(errStalled, "%s %s for %s", at, b.silence(), b.stall)
	case cause != nil:
		return transient(cause, "%s the fetch was ended: %v", at, cause)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return transient(io.ErrUnexpectedEOF, "%s the body ended", at)
	default:
		return transient(err, "%s: %v", at, err)
	}
}

func (b *body) silence() string {
	if b.url.Scheme == "file" {
		return "its file system gave nothing"
	}
	return "the server sent nothing"
}

// drop ends the present answer.
func (b *body) drop() {
	b.end(nil)
	_ = b.content.Close() // it broke already
	b.content = nil
}

// Close ends the reading. It is not called while a read waits: that ends with the context.
func (b *body) Close() error {
	if b.content == nil {
		return nil
	}
	b.end(nil)
	err := b.content.Close()
	b.content = nil
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
