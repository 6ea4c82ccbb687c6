// SPDX-License-Identifier: Apache-2.0

package libvirt

import "sync"

// tailSize is how much of a console is kept, in bytes.
const tailSize = 64 << 10

// tail is the last of what was written, for any number of readers at their own pace: one that is too slow misses what was dropped meanwhile. The zero
// value is empty.
type tail struct {
	mu    sync.Mutex
	kept  []byte
	end   int64         // how much was written in all
	grown chan struct{} // closed by the next write; nil when nobody waits
}

// write never blocks, and keeps none of b's memory.
func (t *tail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end += int64(len(b))
	t.kept = append(t.kept, b[max(len(b)-tailSize, 0):]...)
	if len(t.kept) > 2*tailSize { // seldom, so that little is moved
		t.kept = append([]byte(nil), t.kept[len(t.kept)-tailSize:]...)
	}
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// since returns what was written from an offset on, as far as it is kept, where that ends, and what is closed when there is more.
func (t *tail) since(offset int64) (text []byte, next int64, grown <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.kept[max(len(t.kept)-tailSize, 0):]
	missing := t.end - offset
	text = append([]byte(nil), last[max(int64(len(last))-missing, 0):]...)
	if t.grown == nil {
		t.grown = make(chan struct{})
	}
	return text, t.end, t.grown
}
