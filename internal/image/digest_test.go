// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"
)

func TestSums(t *testing.T) {
	noise := make([]byte, 3*sumsChunk+17)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, content := range map[string][]byte{
		"data":            noise,
		"zeros":           make([]byte, 5*sumsChunk+1),
		"more zeros":      make([]byte, (sumsQueue+8)*4096), // than may wait
		"both":            slices.Concat(noise, make([]byte, 3*sumsChunk), noise[:100], make([]byte, 5), noise, make([]byte, sumsChunk)),
		"nothing":         {},
		"data after zero": slices.Concat(make([]byte, 1), noise),
	} {
		for how, from := range map[string]io.Reader{
			"in large pieces": bytes.NewReader(content),
			"in odd pieces":   iotest.HalfReader(bytes.NewReader(content)),
			"in small pieces": pieces{bytes.NewReader(content), 4096},
		} {
			s := newSums(from, algSHA256, algSHA512)
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s %s: %d bytes, or others, %v", name, how, len(got), err)
			}
			sum := sha512.Sum512(content)
			if s.digest(algSHA256) != digestOf(content) || s.digest(algSHA512) != hex.EncodeToString(sum[:]) {
				t.Errorf("%s %s: wrong digests", name, how)
			}
			s.rest()
		}
	}
}

// pieces is a reader that gives at most so many bytes at a time.
type pieces struct {
	io.Reader
	most int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }
