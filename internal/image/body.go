// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"time"
)

var errStalled = errors.New("stalled")

// body gives exactly the declared length, or an error; a read that takes longer than stall ends with one.
type body struct {
	source       Source
	length, done int64
	content      io.ReadCloser
	stall        time.Duration // 0 for none
	// end breaks a read that waits, and cause says why it ended.
	end   func(error)
	cause func() error
	err   error
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
	if b.stall > 0 {
		timer := time.AfterFunc(b.stall, func() { b.end(errStalled) })
		defer timer.Stop()
	}
	n, err := b.content.Read(p)
	b.done += int64(n)
	if err != nil && b.done < b.length {
		b.err = b.explain(err)
		return n, b.err
	}
	return n, nil
}

func (b *body) explain(err error) error {
	at := fmt.Sprintf("image source %s: after %d of %d bytes", b.source, b.done, b.length)
	switch cause := b.cause(); {
	case errors.Is(cause, errStalled):
		return transient(errStalled, "%s the server sent nothing for %s", at, b.stall)
	case cause != nil:
		return transient(cause, "%s the fetch was ended: %v", at, cause)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return transient(io.ErrUnexpectedEOF, "%s the body ended", at)
	default:
		return transient(err, "%s: %v", at, err)
	}
}

// Close may be called while a read waits: it breaks it.
func (b *body) Close() error {
	b.end(nil)
	return b.content.Close()
}
