// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

const (
	// maxWindow bounds the memory that packed content may ask for, in bytes: what it was packed with says how much.
	maxWindow = 32 << 20
	// packedBuffer is how much of packed content is read at a time.
	packedBuffer = 64 << 10
)

// packing is how an image is packed; it is read from the content.
type packing struct {
	name, magic string
	open        func(io.Reader) (io.Reader, func(), error)
}

var packings = []packing{
	{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, func(), error) {
		g, err := gzip.NewReader(r)
		return g, func() {}, err
	}},
	{"xz", "\xfd7zXZ\x00", func(r io.Reader) (io.Reader, func(), error) {
		x, err := xz.NewReader(r, maxWindow)
		return x, func() {}, err
	}},
	{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
}

// longestMagic of those above, in bytes.
const longestMagic = 6

// packingOf is how the content behind a reader is packed; nil where it is not.
func packingOf(r *bufio.Reader) (*packing, error) {
	start, err := r.Peek(longestMagic)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for i, p := range packings {
		if bytes.HasPrefix(start, []byte(p.magic)) {
			return &packings[i], nil
		}
	}
	return nil, nil
}

// unpacked is the content of a packed file, of at most most bytes.
type unpacked struct {
	source  Source
	name    string
	from    io.Reader
	release func()
	n, most int64
}

func (p *packing) unpack(source Source, served io.Reader, most int64) (*unpacked, error) {
	u := &unpacked{source: source, name: p.name, most: most}
	var err error
	if u.from, u.release, err = p.open(served); err != nil {
		return nil, u.explain(err)
	}
	return u, nil
}

// Read gives unpacked content.
func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	u.n += int64(n)
	if u.n > u.most {
		return 0, permanent("raise maxImageBytes, or use a smaller image", "image source %s: unpacks to more than maxImageBytes, which is %d", u.source, u.most)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.explain(err)
	}
	return n, err
}

func (u *unpacked) explain(err error) error {
	if errors.Is(err, xz.ErrMemlimit) || errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return permanent("pack it with at most xz -8, or zstd -19 without --long", "image source %s: needs more than %d MiB of memory to be unpacked", u.source, maxWindow>>20)
	}
	return permanent("check what the URL serves", "image source %s: is damaged %s data: %v", u.source, u.name, err)
}
