// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pumpChunk  = 256 << 10
	pumpChunks = 2
	// pumpGrace is how long Close waits for a read that is under way.
	pumpGrace = time.Second
	// holeLook bytes of a hole are believed at a time: the file may be cut off.
	holeLook = 16 << 20
)

// pump reads a file ahead in a goroutine of its own, which ends with its context, or as soon after as the file system lets go of it. Holes are not read.
type pump struct {
	ctx        context.Context
	opened     chan opened
	full, free chan chunk
	rest       chunk
	at         int // of rest, what was given
	ended      chan struct{}
	stop       func()
}

type opened struct {
	length int64
	err    error
}

// chunk is n bytes of a file: those of its buffer, or zeros.
type chunk struct {
	buffer []byte
	n      int
	hole   bool
	err    error
}

func newPump(ctx context.Context, open func() (file, error)) *pump {
	ctx, stop := context.WithCancel(ctx)
	p := &pump{
		ctx: ctx, stop: stop, opened: make(chan opened, 1), ended: make(chan struct{}),
		full: make(chan chunk, pumpChunks), free: make(chan chunk, pumpChunks),
	}
	for range pumpChunks {
		p.free <- chunk{buffer: make([]byte, pumpChunk)}
	}
	go func() {
		defer close(p.ended)
		p.run(open)
	}()
	return p
}

func (p *pump) run(open func() (file, error)) {
	f, err := open()
	if err != nil {
		p.opened <- opened{err: err}
		return
	}
	closeFile := sync.OnceFunc(func() { _ = f.Close() })
	defer closeFile()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = permanent("name a file", "is not a regular file")
	}
	if err != nil {
		p.opened <- opened{err: err}
		return
	}
	p.opened <- opened{length: info.Size()}
	r := newHoleReader(f)
	for {
		select {
		case c := <-p.free:
			c.n, c.hole, c.err = r.next(c.buffer)
			p.full <- c // as many as there is room for
			if c.err != nil {
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// Read gives what was read ahead.
func (p *pump) Read(b []byte) (int, error) {
	if p.at == p.rest.n {
		if p.rest.err != nil {
			return 0, p.rest.err
		}
		if p.rest.buffer != nil {
			p.free <- p.rest
		}
		select {
		case p.rest = <-p.full:
			p.at = 0
		case <-p.ctx.Done():
			p.rest, p.at = chunk{err: context.Cause(p.ctx)}, 0
		}
		if p.rest.n == 0 {
			return 0, p.rest.err
		}
	}
	n := min(len(b), p.rest.n-p.at)
	if p.rest.hole {
		clear(b[:n])
	} else {
		copy(b, p.rest.buffer[p.at:p.at+n])
	}
	p.at += n
	return n, nil
}

// Close ends the reading; where the file system hangs, the goroutine is left to it.
func (p *pump) Close() error {
	p.stop()
	timer := time.NewTimer(pumpGrace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
	}
	return nil
}

// holeReader reads a file from its start, without reading its holes where the file system tells of them.
type holeReader struct {
	file
	places places // nil where it does not
	at     int64
	end    int64 // of the extent that at is in: data, or a hole
	hole   bool
}

// places is what can be read anywhere, and be asked for its holes.
type places interface {
	io.ReaderAt
	io.Seeker
}

func newHoleReader(f file) *holeReader {
	r := &holeReader{file: f}
	r.places, _ = f.(places)
	return r
}

// next reads what follows into b, or says that as many zeros follow.
func (r *holeReader) next(b []byte) (n int, hole bool, err error) {
	if r.places == nil {
		n, err = r.Read(b)
		return n, false, err
	}
	if r.at == r.end {
		if err := r.look(); err != nil {
			return 0, false, err
		}
		if r.places == nil {
			return r.next(b)
		}
	}
	if r.hole {
		n = int(min(int64(len(b)), r.end-r.at))
		r.at += int64(n)
		return n, true, nil
	}
	n, err = r.places.ReadAt(b[:min(int64(len(b)), r.end-r.at)], r.at)
	r.at += int64(n)
	return n, false, err
}

// look finds the extent that begins here.
func (r *holeReader) look() error {
	data, err := r.places.Seek(r.at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // the rest is a hole, or the file ends here: now, whatever it was when it was opened
		info, err := r.Stat()
		if err != nil {
			return err
		}
		r.holeTo(info.Size())
		if r.at == r.end {
			return io.EOF
		}
		return nil
	case err != nil: // a file system that knows of none
		return r.plain()
	case data > r.at:
		r.holeTo(data)
		return nil
	}
	if r.end, err = r.places.Seek(r.at, unix.SEEK_HOLE); err != nil || r.end <= r.at {
		return r.plain()
	}
	r.hole = false
	return nil
}

// holeTo notes a hole, up to where it is looked at again.
func (r *holeReader) holeTo(end int64) {
	r.hole, r.end = true, max(r.at, min(end, r.at+holeLook))
}

// plain reads what is left as it comes.
func (r *holeReader) plain() error {
	_, err := r.places.Seek(r.at, io.SeekStart)
	r.places = nil
	return err
}
