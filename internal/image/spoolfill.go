// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// fill downloads an image into its item, or goes on with what broke off before. Where that can be gone on with once more, the stream is returned, and
// is not closed.
func (s *spool) fill(ctx context.Context, it *item, o *Opener, source Source) (broken *stream, err error) {
	st := it.broken
	it.broken = nil
	if st == nil {
		st, err = s.begin(ctx, it, o, source)
	} else if !st.resume(ctx) {
		err = st.body.err
	}
	if err == nil {
		err = s.copy(it, st)
	}
	if err == nil {
		err = s.complete(it, st)
	}
	switch {
	case st == nil:
	case err != nil && it.written >= s.worth && st.mayResume(err):
		st.park()
		return st, err
	default:
		st.close()
	}
	return nil, err
}

// begin opens a source, and makes room for what it gives.
func (s *spool) begin(ctx context.Context, it *item, o *Opener, source Source) (*stream, error) {
	st, err := o.stream(ctx, source)
	if err != nil {
		return nil, err
	}
	if st.size >= 0 && !s.reserve(it, st.size) {
		return st, errUnspooled
	}
	f, err := s.create()
	if err != nil {
		return st, s.diskError(err)
	}
	s.mu.Lock()
	it.file = f
	s.mu.Unlock()
	if st.size >= 0 {
		if err := f.Truncate(st.size); err != nil {
			return st, s.diskError(err)
		}
		it.progress.begin(st.info, st.size)
	}
	return st, nil
}

// complete verifies what was copied, and lets it be published.
func (s *spool) complete(it *item, st *stream) error {
	result, err := st.result()
	if err != nil {
		return err
	}
	if st.size < 0 {
		if err := it.file.Truncate(result.Bytes); err != nil {
			return s.diskError(err)
		}
		s.trim(it, result.Bytes)
		it.progress.begin(result.Info, result.Bytes)
	}
	it.progress.finish(result)
	return nil
}

// copy writes the stream to the item's file. Blocks of zeros are left out: they are holes of the file.
func (s *spool) copy(it *item, st *stream) error {
	buffer := make([]byte, spoolChunk)
	for {
		n, err := fillBuffer(st, buffer)
		if n > 0 {
			if st.size < 0 && it.written+int64(n) > it.reserved && !s.reserve(it, spoolStep) {
				return &Error{
					Kind: Capacity, Next: "raise its limit, or publish a smaller image",
					Message: "image source " + st.source.String() + ": what it unpacks to has no room in the image spool",
				}
			}
			if !isZero(buffer[:n]) {
				if _, err := it.file.WriteAt(buffer[:n], it.written); err != nil {
					return s.diskError(err)
				}
			}
			it.written += int64(n)
			it.progress.advance(it.written, st.body.done, st.body.length)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fillBuffer reads until the buffer is full or the stream ends or breaks.
func fillBuffer(r io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var more int
		more, err = r.Read(buffer[n:])
		n += more
	}
	return n, err
}

func (s *spool) diskError(err error) error {
	kind := Transient
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = Capacity
	}
	return &Error{Kind: kind, Message: "image spool " + s.dir + ": " + err.Error(), Next: "make room there, or give the operator another folder", Err: err}
}
