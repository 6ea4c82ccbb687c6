// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
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
	sumsChunk  = 64 << 10
	sumsChunks = 32
	// sumsQueue is how many pieces may wait to be hashed: zeros, which take no memory, can be many.
	sumsQueue = 1 << 10
)

// sums hashes what passes through a reader, in a goroutine of its own, so that the transfer does not wait for it. rest ends the goroutine, and the next
// Read starts another.
type sums struct {
	from   io.Reader
	hashes map[algorithm]hash.Hash
	free   chan []byte // nil while at rest, as full
	full   chan piece
	ended  sync.WaitGroup
	n      int64
}

// piece is what is to be hashed next: data, in a buffer that goes back to the free ones, or so many zeros.
type piece struct {
	data  []byte
	zeros int
}

func newSums(from io.Reader, algorithms ...algorithm) *sums {
	s := &sums{from: from, hashes: map[algorithm]hash.Hash{}}
	for _, a := range algorithms {
		s.hashes[a] = a.new()
	}
	return s
}

func (s *sums) start() {
	free, full := make(chan []byte, sumsChunks), make(chan piece, sumsQueue)
	for range sumsChunks {
		free <- make([]byte, sumsChunk)
	}
	s.free, s.full = free, full
	s.ended.Go(func() {
		for p := range full {
			if p.data == nil {
				s.add(zeros[:p.zeros])
				continue
			}
			s.add(p.data)
			free <- p.data[:sumsChunk]
		}
	})
}

func (s *sums) add(data []byte) {
	for _, h := range s.hashes {
		h.Write(data)
	}
}

// Read passes on what it reads.
func (s *sums) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.n += int64(n)
	for rest := p[:n]; len(rest) > 0; {
		if s.full == nil {
			s.start()
		}
		next := rest[:min(len(rest), sumsChunk)]
		rest = rest[len(next):]
		if isZero(next) {
			s.full <- piece{zeros: len(next)}
			continue
		}
		chunk := (<-s.free)[:len(next)]
		copy(chunk, next)
		s.full <- piece{data: chunk}
	}
	return n, err
}

// zeros are as many as any buffer here takes.
var zeros [max(sumsChunk, spoolChunk)]byte

// isZero says whether data, which is not longer than zeros, is nothing else.
func isZero(data []byte) bool { return bytes.Equal(data, zeros[:len(data)]) }

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
