// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"hash"
	"io"
	"sync/atomic"
)

// meter hashes and counts what passes, and keeps the reader's own error, which the far end of an upload may replace by another.
type meter struct {
	from        io.Reader
	hash        hash.Hash
	done, total int64
	report      func(done, total int64)
	// failure is set by the reading goroutine, and may be looked at while that still runs.
	failure atomic.Pointer[error]
}

// err is the reader's own error so far.
func (m *meter) err() error {
	if failure := m.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Read passes on what it reads.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.hash.Write(p[:n])
	m.done += int64(n)
	if m.report != nil && n > 0 {
		m.report(m.done, m.total)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		m.failure.Store(&err)
	}
	return n, err
}
