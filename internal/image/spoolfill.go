// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"syscall"
)

// fill downloads an image into its item.
func (s *spool) fill(ctx context.Context, it *item, o *Opener, source Source) error {
	st, err := o.stream(ctx, source)
	if err != nil {
		return err
	}
	defer st.close()
	if st.size >= 0 && !s.reserve(it, st.size) {
		return errUnspooled
	}
	f, err := s.create()
	if err != nil {
		return s.diskError(err)
	}
	s.mu.Lock()
	it.file = f
	s.mu.Unlock()
	if st.size >= 0 {
		if err := f.Truncate(st.size); err != nil {
			return s.diskError(err)
		}
		it.progress.begin(st.info, st.size)
	}
	if err := s.copy(ctx, it, st); err != nil {
		return err
	}
	result, err := st.result()
	if err != nil {
		return err
	}
	if st.size < 0 {
		if err := f.Truncate(result.Bytes); err != nil {
			return s.diskError(err)
		}
		s.trim(it, result.Bytes)
		it.progress.begin(result.Info, result.Bytes)
	}
	it.progress.finish(result)
	return nil
}

// copy writes the stream to the item's file. Blocks of zeros are left out: they are holes of the file.
func (s *spool) copy(ctx context.Context, it *item, st *stream) error {
	buffer := make([]byte, spoolChunk)
	at := int64(0)
	for {
		n, err := fillBuffer(st, buffer)
		if n > 0 {
			if st.size < 0 && at+int64(n) > it.reserved && !s.reserve(it, spoolStep) {
				return &Error{
					Kind: Capacity, Next: "raise its limit, or publish a smaller image",
					Message: "image source " + st.source.String() + ": what it unpacks to has no room in the image spool",
				}
			}
			if !bytes.Equal(buffer[:n], zeros[:n]) {
				if _, err := it.file.WriteAt(buffer[:n], at); err != nil {
					return s.diskError(err)
				}
			}
			at += int64(n)
			it.progress.advance(at, st.body.done, st.body.length)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case st.unpacked == nil && KindOf(err) == Transient && st.body.resumable() && !errors.Is(err, errChanged) && ctx.Err() == nil:
			if !s.park(ctx, it, err) || !st.body.again() {
				return err
			}
		default:
			return err
		}
	}
}

var zeros [spoolChunk]byte

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
