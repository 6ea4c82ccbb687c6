// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// breaking is a server that breaks off after so many bytes of each answer, the last of which is whole.
type breaking struct {
	content []byte
	after   []int // one for each answer
	etag    string
	deaf    bool // ignores Range
	hasty   bool // ignores If-Range

	mu     sync.Mutex
	ranges []string
}

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	answer := len(b.ranges)
	b.ranges = append(b.ranges, r.Header.Get("Range"))
	b.mu.Unlock()
	start := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start); err != nil || b.deaf || !b.hasty && r.Header.Get("If-Range") != b.etag {
		start = 0
	}
	if b.etag != "" {
		w.Header().Set("ETag", b.etag)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b.content)-start))
	if start > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(b.content)-1, len(b.content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	if answer >= len(b.after) {
		_, _ = w.Write(b.content[start:])
		return
	}
	_, _ = w.Write(b.content[start : start+b.after[answer]])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func (b *breaking) asked(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.ranges, want) {
		t.Errorf("the server was asked for %q, want %q", b.ranges, want)
	}
}

func TestResume(t *testing.T) {
	t.Run("X5: what breaks off goes on where it ended", func(t *testing.T) {
		server := &breaking{content: disk, etag: `"one"`, after: []int{70_000, 20_000}}
		url := serve(t, server.ServeHTTP)
		sink := &memory{}
		if _, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), sink, nil); err != nil {
			t.Fatal(err)
		}
		server.asked(t, "", "bytes=70000-", "bytes=90000-")
		if sink.wrote(t, "write", "publish"); !bytes.Equal(sink.stored, disk) {
			t.Errorf("%d bytes were stored, not those that are served", len(sink.stored))
		}
	})
	t.Run("X5: a server that ignores Range", func(t *testing.T) {
		server := &breaking{content: disk, deaf: true, after: []int{70_000, 90_000}}
		data, _, err := readAll(t, &Opener{}, pinned(serve(t, server.ServeHTTP)))
		if err != nil || !bytes.Equal(data, disk) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		server.asked(t, "", "bytes=70000-", "bytes=90000-")
	})
	t.Run("X5: a file that changes in between is not spliced", func(t *testing.T) {
		other := bytes.ToUpper(disk)
		for name, change := range map[string]func(*breaking){
			"it has another version": func(b *breaking) { b.content, b.etag = other, `"two"` },
			"it is longer now, and If-Range is ignored": func(b *breaking) {
				b.content, b.etag, b.hasty = append(bytes.Clone(disk), disk...), "", true
			},
			"it has another version, and If-Range is ignored": func(b *breaking) { b.content, b.etag, b.hasty = other, `"two"`, true },
			"it is shorter now": func(b *breaking) { b.content, b.etag = disk[:1000], `"two"` },
		} {
			server := &breaking{content: disk, etag: `"one"`, after: []int{70_000}}
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					change(server)
				}
				server.ServeHTTP(w, r)
			})
			sink := &memory{}
			_, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), sink, nil)
			wantError(t, err, Transient, "another file")
			if !errors.Is(err, errChanged) {
				t.Errorf("%s: %v does not start over", name, err)
			}
			sink.wrote(t, "write", "discard")
		}
	})
	t.Run("X5: a file that changes before its first byte came", func(t *testing.T) {
		first := true
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !first {
				contents(disk[:1000])(w, r)
				return
			}
			first = false
			(&breaking{content: disk, after: []int{0}}).ServeHTTP(w, r)
		})
		sink := &memory{}
		_, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), sink, nil)
		wantError(t, err, Transient, "another file")
		sink.wrote(t)
	})
	t.Run("X5: two answers that are not told apart are held to the digest, and fetched anew", func(t *testing.T) {
		server := &breaking{content: disk, after: []int{70_000}}
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				server.content = bytes.ToUpper(disk)
			}
			server.ServeHTTP(w, r)
		})
		sink := &memory{}
		_, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), sink, nil)
		wantError(t, err, Transient, "the fetch starts over")
		sink.wrote(t, "write", "discard")
	})
	t.Run("X5: another range than was asked for is not taken", func(t *testing.T) {
		server := &breaking{content: disk, etag: `"one"`, after: []int{70_000}}
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" {
				server.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 80000-%d/%d", len(disk)-1, len(disk)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(disk[80_000:])
		})
		_, _, err := readAll(t, &Opener{}, pinned(url))
		wantError(t, err, Transient, "another range")
	})
	t.Run("without a version and a digest nothing is resumed", func(t *testing.T) {
		body := &body{source: Source{URL: "https://example.org/a"}}
		body.url, _ = body.source.parse()
		if body.resumable() {
			t.Error("two answers would be spliced, and nobody could tell")
		}
	})
	// Part of H2: three tries, all of them within a second.
	t.Run("a server that goes on breaking off", func(t *testing.T) {
		server := &breaking{content: disk, etag: `"one"`, after: []int{70_000, 0, 0, 0, 0}}
		_, _, err := readAll(t, &Opener{}, pinned(serve(t, server.ServeHTTP)))
		wantError(t, err, Transient, "after 70000 of 131072 bytes")
		server.asked(t, "", "bytes=70000-", "bytes=70000-", "bytes=70000-")
	})
	t.Run("X5: a stall is resumed, once", func(t *testing.T) {
		var mu sync.Mutex
		asked := 0
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked++
			mu.Unlock()
			if r.Header.Get("Range") != "" {
				(&breaking{content: disk, etag: `"one"`}).ServeHTTP(w, r)
				return
			}
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
			_, _ = w.Write(disk[:1000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		data, _, err := readAll(t, &Opener{StallTimeout: 2 * time.Second}, pinned(url))
		if err != nil || !bytes.Equal(data, disk) || asked != 2 {
			t.Errorf("%d bytes in %d answers, %v", len(data), asked, err)
		}
	})
}

func TestRangeStart(t *testing.T) {
	for header, want := range map[string][3]int64{
		"bytes 5-9/10": {5, 10, 1}, "bytes 5-9/*": {5, -1, 1}, "bytes */10": {}, "": {}, "bytes -5-9/10": {}, "items 5-9/10": {}, "bytes 5-9/x": {5},
	} {
		start, total, ok := rangeStart(header)
		if ok != (want[2] == 1) || ok && (start != want[0] || total != want[1]) {
			t.Errorf("%q: %d of %d, %v", header, start, total, ok)
		}
	}
}

// hung is a file whose file system hangs, until the test ends.
type hung struct {
	at      string
	content io.Reader
	let     chan struct{}
}

func (h *hung) wait(at string) {
	if h.at == at {
		<-h.let
	}
}

func (h *hung) Read(p []byte) (int, error) {
	if n, err := h.content.Read(p); err == nil {
		return n, nil
	}
	h.wait("read")
	return 0, io.EOF
}

func (h *hung) Close() error { return nil }

func (h *hung) Stat() (fs.FileInfo, error) {
	h.wait("stat")
	return info{}, nil
}

type info struct{ fs.FileInfo }

func (info) Mode() fs.FileMode { return 0 }
func (info) Size() int64       { return 1 << 20 }

func TestAFileSystemThatHangs(t *testing.T) {
	for _, at := range []string{"open", "stat", "read"} {
		t.Run("X5: file:// hangs at "+at, func(t *testing.T) {
			h := &hung{at: at, content: strings.NewReader(strings.Repeat("x", 100_000)), let: make(chan struct{})}
			t.Cleanup(func() { close(h.let) })
			o := &Opener{StallTimeout: 100 * time.Millisecond, openPath: func(string) (file, error) {
				h.wait("open")
				return h, nil
			}}
			sink := &memory{hideReadError: true}
			_, err := turns(1).Fetch(t.Context(), o, Source{URL: "file:///x"}, sink, nil)
			wantError(t, err, Transient, "its file system gave nothing for 100ms")
			if sink.published != nil {
				t.Error("published")
			}
		})
	}
	// Part of H2: what hangs for ever takes one goroutine, however often it is tried.
	t.Run("is tried again when it let go", func(t *testing.T) {
		h, opens := &hung{at: "open", let: make(chan struct{})}, new(atomic.Int32)
		depot := turns(1)
		try := func() error {
			o := &Opener{StallTimeout: 100 * time.Millisecond, openPath: func(string) (file, error) {
				opens.Add(1)
				h.wait("open")
				return growing{}, nil
			}}
			_, err := depot.Fetch(t.Context(), o, Source{URL: "file:///x"}, &memory{}, nil)
			return err
		}
		wantError(t, try(), Transient, "its file system gave nothing")
		for range 100 {
			wantError(t, try(), Transient, "hangs still")
		}
		if n := opens.Load(); n != 1 {
			t.Errorf("opened %d times", n)
		}
		close(h.let)
		waitFor(t, func() bool { return !depot.hangs.still("/x") })
		if err := try(); err != nil {
			t.Error(err)
		}
	})
}

func TestFilesAreReadWhole(t *testing.T) {
	content := bytes.Repeat(disk, 20)
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	sink := &memory{}
	result, err := direct.Fetch(t.Context(), &Opener{}, Source{URL: "file://" + path, SHA256: digestOf(content)}, sink, nil)
	if err != nil || !bytes.Equal(sink.stored, content) || result.Bytes != int64(len(content)) {
		t.Errorf("%+v, %v", result, err)
	}
}
