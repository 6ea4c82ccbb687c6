// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"io"
	"strings"
	"sync"
)

// algorithm is a digest that content can be held to, as checksums files name it.
type algorithm string

const (
	algSHA256 algorithm = "sha256"
	algSHA512 algorithm = "sha512"
)

func (a algorithm) new() hash.Hash {
	if a == algSHA512 {
		return sha512.New()
	}
	return sha256.New()
}

// pin is the digest that an image must have; the zero value accepts all.
type pin struct {
	algorithm algorithm
	digest    string // hexadecimal, lower case
	unpacked  bool
}

func (s Source) pin() pin {
	switch {
	case s.SHA256 != "":
		return pin{algSHA256, strings.ToLower(s.SHA256), s.Unpacked}
	case s.SHA512 != "":
		return pin{algSHA512, strings.ToLower(s.SHA512), s.Unpacked}
	}
	return pin{}
}

const (
	// sumsChunk bytes are hashed at a time, beside the reading of the next sumsChunks.
	sumsChunk  = 256 << 10
	sumsChunks = 3
)

// sums hashes what passes through a reader, in a goroutine of its own, so that the transfer does not wait for it. rest ends the goroutine, and the next
// Read starts another.
type sums struct {
	from       io.Reader
	hashes     map[algorithm]hash.Hash
	free, full chan []byte // nil while at rest
	ended      sync.WaitGroup
	n          int64
}

func newSums(from io.Reader, algorithms ...algorithm) *sums {
	s := &sums{from: from, hashes: map[algorithm]hash.Hash{}}
	for _, a := range algorithms {
		s.hashes[a] = a.new()
	}
	return s
}

func (s *sums) start() {
	free, full := make(chan []byte, sumsChunks), make(chan []byte, sumsChunks)
	for range sumsChunks {
		free <- make([]byte, sumsChunk)
	}
	s.free, s.full = free, full
	s.ended.Go(func() {
		for chunk := range full {
			for _, h := range s.hashes {
				h.Write(chunk)
			}
			free <- chunk[:sumsChunk]
		}
	})
}

// Read passes on what it reads.
func (s *sums) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.n += int64(n)
	for rest := p[:n]; len(rest) > 0; {
		if s.full == nil {
			s.start()
		}
		chunk := <-s.free
		took := copy(chunk, rest)
		s.full <- chunk[:took]
		rest = rest[took:]
	}
	return n, err
}

// digest of all that was read.
func (s *sums) digest(a algorithm) string {
	s.rest()
	return hex.EncodeToString(s.hashes[a].Sum(nil))
}

// rest hashes what is still to be hashed, and gives the goroutine and its memory back.
func (s *sums) rest() {
	if s.full == nil {
		return
	}
	close(s.full)
	s.ended.Wait()
	s.free, s.full = nil, nil
}
