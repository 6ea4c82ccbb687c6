// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// hollow is a sink that keeps nothing, and looks at the heap as it takes.
type hollow struct {
	peak  *peak
	taken int64
}

func (h *hollow) Write(_ context.Context, r io.Reader, _ int64, _ Info) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := r.Read(buffer)
		if before := h.taken >> 24; (h.taken+int64(n))>>24 > before {
			h.peak.look()
		}
		h.taken += int64(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (h *hollow) Publish(context.Context, Result) error { return nil }
func (h *hollow) Discard(context.Context) error         { return nil }

// peak is the most that was in use.
type peak struct {
	mu    sync.Mutex
	bytes uint64
}

func (p *peak) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	p.bytes = max(p.bytes, stats.HeapInuse+stats.StackInuse)
}

// Part of C4, whose benchmark is on the real host.
func TestMemoryDoesNotGrowWithTheImage(t *testing.T) {
	const size, hosts = 192 << 20, 4
	noise := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(noise)
	large := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(noise) {
			if _, err := w.Write(noise); err != nil {
				return
			}
		}
	}
	zeros := fixture(t, "zeros-96MiB.xz")
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		digest  string
		bytes   int64
	}{
		"plain": {large, "", size},
		"xz":    {contents(zeros), digestOf(zeros), 96 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			private := newMirror(t, test.handler)
			depot := spooling(t, 1<<40)
			o := &Opener{Mirrors: map[string]Mirror{private.host: {CAFile: private.ca}}}
			seen := &peak{}
			runtime.GC()
			seen.look()
			before := seen.bytes
			var all sync.WaitGroup
			for range hosts {
				all.Go(func() {
					sink := &hollow{peak: seen}
					_, err := depot.Fetch(t.Context(), o, Source{URL: private.URL, SHA256: test.digest}, sink, nil)
					if err != nil || sink.taken != test.bytes {
						t.Errorf("%d bytes, %v", sink.taken, err)
					}
				})
			}
			all.Wait()
			used := float64(seen.bytes-before) / (1 << 20)
			t.Logf("memory: %d MiB for %d hosts, %.1f MiB above the start", test.bytes>>20, hosts, used)
			if used > 64 {
				t.Errorf("%.1f MiB of memory", used)
			}
		})
	}
}
