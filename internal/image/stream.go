// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Result describes a fetched image.
type Result struct {
	Info
	// SHA256 of the content, in lower-case hexadecimal.
	SHA256 string
	// Unpacked: the content was unpacked from the served file. Where it is false, the two are the same.
	Unpacked bool
	// Bytes is the content's length.
	Bytes int64
}

// stream is an image on its way: what a source holds, unpacked, and looked at before anybody is given a byte. It is read to its end, and then
// asked for its result.
type stream struct {
	source Source
	pin    pin
	info   Info
	// size of the content in bytes; -1 where only its end tells.
	size int64

	body     *body
	served   *sums // nil where nothing of the file as served is hashed, or where nothing is packed
	rest     *bufio.Reader
	unpacked *unpacked // nil where nothing is packed
	turn     func()    // gives back the turn to unpack
	sums     *sums
	content  io.Reader
}

// stream opens a source, and looks at its header. The caller closes it.
func (o *Opener) stream(ctx context.Context, source Source) (*stream, error) {
	if err := source.Validate(); err != nil {
		return nil, err
	}
	pin, err := o.resolve(ctx, source)
	if err != nil {
		return nil, err
	}
	b, err := o.open(ctx, source)
	if err != nil {
		return nil, err
	}
	s := &stream{source: source, pin: pin, size: b.length, body: b, turn: func() {}}
	if err := s.begin(ctx, o); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stream) begin(ctx context.Context, o *Opener) error {
	algorithms := []algorithm{algSHA256}
	if s.pin.algorithm == algSHA512 {
		algorithms = append(algorithms, algSHA512)
	}
	// Whether it is packed is seen from its first bytes, which are to be hashed too. Where it is not, these sums are the content's.
	s.sums = newSums(s.body, algorithms...)
	s.rest = bufio.NewReaderSize(s.sums, packedBuffer)
	packing, err := packingOf(s.rest)
	if err != nil {
		return s.cause(err)
	}
	var content io.Reader = s.rest
	if packing != nil {
		if s.turn, err = o.unpackTurn(ctx); err != nil {
			return err
		}
		if s.unpacked, err = packing.unpack(s.source, s.rest, o.maxBytes()); err != nil {
			return s.cause(err)
		}
		s.size, s.served = -1, s.sums
		s.sums = newSums(s.unpacked, algorithms...)
		content = s.sums
	}
	header := make([]byte, HeaderBytes)
	n, err := fillBuffer(content, header)
	if err != nil && !errors.Is(err, io.EOF) {
		return s.cause(err)
	}
	if s.info, err = s.inspect(header[:n]); err != nil {
		return err
	}
	s.content = io.MultiReader(bytes.NewReader(header[:n]), content)
	return nil
}

// unpackTurn waits until no other stream is being unpacked.
func (o *Opener) unpackTurn(ctx context.Context) (giveBack func(), err error) {
	if o.unpacking == nil {
		return func() {}, nil
	}
	select {
	case o.unpacking <- struct{}{}:
		return sync.OnceFunc(func() { <-o.unpacking }), nil
	case <-ctx.Done():
		return func() {}, transient(context.Cause(ctx), "the fetch was ended: %v", context.Cause(ctx))
	}
}

func (s *stream) inspect(header []byte) (Info, error) {
	info, err := Inspect(header)
	var ours *Error
	if errors.As(err, &ours) {
		return Info{}, &Error{Kind: ours.Kind, Message: fmt.Sprintf("image source %s: %s", s.source, ours.Message), Next: ours.Next, Err: err}
	}
	if s.source.Format != "" && s.source.Format != info.Format {
		return Info{}, permanent("correct the format, or leave it out", "image source %s: the content is %s, not %s", s.source, info.Format, s.source.Format)
	}
	if info.Format == Raw {
		info.VirtualSize = max(s.size, 0)
	}
	return info, nil
}

// cause prefers what broke underneath to what an unpacker says of it.
func (s *stream) cause(err error) error {
	if s.body.err != nil {
		return s.body.err
	}
	return err
}

// Read gives the content.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.content.Read(p)
	if err != nil {
		err = s.cause(err)
	}
	return n, err
}

// result verifies what was read. It reads what follows the content, where the file is packed: the digest is of all of it.
func (s *stream) result() (Result, error) {
	result := Result{Info: s.info, Unpacked: s.unpacked != nil, Bytes: s.sums.n}
	if s.unpacked == nil && result.Bytes != s.size {
		return Result{}, transient(nil, "image source %s: only %d of %d bytes were stored", s.source, result.Bytes, s.size)
	}
	if s.unpacked != nil {
		if _, err := io.Copy(io.Discard, s.rest); err != nil {
			return Result{}, s.cause(err)
		}
		if result.Format == Raw {
			result.VirtualSize = result.Bytes
		}
	}
	if err := s.verify(); err != nil {
		return Result{}, err
	}
	result.SHA256 = s.sums.digest(algSHA256)
	return result, nil
}

func (s *stream) verify() error {
	if s.pin.digest == "" {
		return nil
	}
	from, of := s.sums, "what was served"
	switch {
	case s.unpacked != nil && !s.pin.unpacked:
		from = s.served
	case s.pin.unpacked:
		of = "what it unpacks to"
	}
	got := from.digest(s.pin.algorithm)
	if got == s.pin.digest {
		return nil
	}
	if s.body.blind {
		return transient(errChanged, "image source %s: expected %s %s, and %s, in more than one answer, has %s: the fetch starts over", s.source, s.pin.algorithm, s.pin.digest, of, got)
	}
	return permanent("correct the "+string(s.pin.algorithm)+", or find out who changed the image",
		"image source %s: expected %s %s, and %s has %s", s.source, s.pin.algorithm, s.pin.digest, of, got)
}

// park gives back what a stream that broke off needs only while it is read. It can be read on, with a context of its own.
func (s *stream) park() { s.sums.rest() }

// resume lets a stream go on that broke off, where that is of any use.
func (s *stream) resume(ctx context.Context) bool {
	s.body.ctx = ctx
	return s.body.again()
}

// mayResume says whether a stream that broke off with err can go on later.
func (s *stream) mayResume(err error) bool {
	return s.unpacked == nil && KindOf(err) == Transient && s.body.resumable() && !errors.Is(err, errChanged) && s.body.ctx.Err() == nil
}

// close ends all that belongs to the stream.
func (s *stream) close() {
	defer s.turn()
	_ = s.body.Close() // nothing was written
	if s.unpacked != nil {
		s.unpacked.release()
	}
	for _, sums := range []*sums{s.served, s.sums} {
		if sums != nil {
			sums.rest()
		}
	}
}
