// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// direct is a depot without a spool.
var direct = turns(DefaultTurns)

// memory is a sink that keeps a diary; the errors are what its steps answer.
type memory struct {
	writeErr, publishErr, discardErr error
	take                             int64 // stop after so many bytes, without an error; 0 for all
	hideReadError                    bool  // as a daemon does that says "stream aborted"

	diary     []string
	stored    []byte
	published *Result
	discarded context.Context
}

func (m *memory) Write(_ context.Context, r io.Reader, length int64, info Info) error {
	m.diary = append(m.diary, "write")
	if m.writeErr != nil {
		return m.writeErr
	}
	if m.take > 0 {
		r = io.LimitReader(r, m.take)
	}
	data, err := io.ReadAll(r)
	m.stored = data
	if err != nil && m.hideReadError {
		return errors.New("stream aborted")
	}
	return err
}

func (m *memory) Publish(_ context.Context, result Result) error {
	m.diary = append(m.diary, "publish")
	m.published = &result
	return m.publishErr
}

func (m *memory) Discard(ctx context.Context) error {
	m.diary = append(m.diary, "discard")
	m.discarded = ctx
	return m.discardErr
}

func (m *memory) wrote(t *testing.T, diary ...string) {
	t.Helper()
	if diff := cmp.Diff(diary, m.diary); diff != "" {
		t.Errorf("the sink's steps:\n%s", diff)
	}
}

func TestFetch(t *testing.T) {
	small := qcow2(3)
	for name, test := range map[string]struct {
		content []byte
		source  Source
		want    Result
	}{
		"raw, pinned":           {disk, Source{SHA256: strings.ToUpper(digestOf(disk))}, Result{Info{Raw, int64(len(disk))}, digestOf(disk), false, int64(len(disk))}},
		"qcow2, format checked": {small, Source{SHA256: digestOf(small), Format: QCOW2}, Result{Info{QCOW2, 4 << 30}, digestOf(small), false, int64(len(small))}},
	} {
		t.Run(name, func(t *testing.T) {
			test.source.URL = serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(len(test.content)))
				_, _ = w.Write(test.content)
			})
			sink, last, total := &memory{}, int64(0), int64(0)
			got, err := direct.Fetch(t.Context(), &Opener{}, test.source, sink, func(p Progress) {
				if p.Done < last {
					t.Errorf("progress goes back from %d to %d", last, p.Done)
				}
				last, total = p.Done, p.Total
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			sink.wrote(t, "write", "publish")
			if !bytes.Equal(sink.stored, test.content) || sink.published == nil || *sink.published != got {
				t.Errorf("stored %d bytes, published %+v", len(sink.stored), sink.published)
			}
			if last != got.Bytes || total != got.Bytes {
				t.Errorf("progress ended at %d of %d", last, total)
			}
		})
	}
}

func TestFetchThatStoresNothing(t *testing.T) {
	backed := qcow2(3, put64(8, 600), put32(16, 11))
	for name, test := range map[string]struct {
		content []byte
		format  Format
		says    string
	}{
		"backing file": {backed, "", "names a backing file"},
		"web page":     {[]byte("<!DOCTYPE html>" + strings.Repeat(" ", 1000)), "", "is a web page"},
		"wrong format": {disk, QCOW2, "the content is raw, not qcow2"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(test.content[:min(len(test.content), 2000)])
			})
			sink := &memory{}
			_, err := direct.Fetch(t.Context(), &Opener{}, Source{URL: url, SHA256: digestOf(test.content), Format: test.format}, sink, nil)
			wantError(t, err, Permanent, test.says)
			if !strings.Contains(err.Error(), "image source "+url) {
				t.Errorf("the error does not name the source: %v", err)
			}
			sink.wrote(t)
		})
	}
}

func TestFetchThatFails(t *testing.T) {
	url := serve(t, whole)
	noSpace := &Error{Kind: Capacity, Message: "pool default is full"}
	for name, test := range map[string]struct {
		sink  *memory
		diary []string
		kind  Kind
		says  string
	}{
		"no room":           {&memory{writeErr: noSpace}, []string{"write", "discard"}, Capacity, "pool default is full"},
		"the link broke":    {&memory{writeErr: errors.New("link: EOF")}, []string{"write", "discard"}, Transient, "link: EOF"},
		"stored in part":    {&memory{take: 1000}, []string{"write", "discard"}, Transient, "bytes were stored"},
		"not published":     {&memory{publishErr: errors.New("link: EOF")}, []string{"write", "publish", "discard"}, Transient, "link: EOF"},
		"not discarded too": {&memory{writeErr: noSpace, discardErr: errors.New("link: EOF")}, []string{"write", "discard"}, Capacity, "pool default is full (what was stored of it could not be removed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), test.sink, nil)
			wantError(t, err, test.kind, test.says)
			test.sink.wrote(t, test.diary...)
		})
	}
}

// M13 is proven on a real host; this is its rule.
func TestWrongDigestIsNeverPublished(t *testing.T) {
	sink := &memory{}
	mistyped := strings.Repeat("ab", 32)
	_, err := direct.Fetch(t.Context(), &Opener{}, Source{URL: serve(t, whole), SHA256: mistyped}, sink, nil)
	wantError(t, err, Permanent, "expected sha256 "+mistyped+", and what was served has "+digestOf(disk))
	sink.wrote(t, "write", "discard")
}

func TestLongURLsLeaveRoomForWhatHappened(t *testing.T) {
	url := serve(t, whole) + "/" + strings.Repeat("a", 1000) + "/debian.qcow2"
	mistyped := strings.Repeat("ab", 32)
	_, err := direct.Fetch(t.Context(), &Opener{}, Source{URL: url, SHA256: mistyped}, &memory{}, nil)
	var e *Error
	if !errors.As(err, &e) || len(e.Message) > 300 || !strings.Contains(e.Message, digestOf(disk)) || !strings.Contains(e.Message, "/debian.qcow2: ") {
		t.Errorf("got %v", err)
	}
}

func TestShortBodyIsNeverPublished(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
		_, _ = w.Write(disk[:100_000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	sink := &memory{hideReadError: true}
	_, err := direct.Fetch(t.Context(), &Opener{}, pinned(url), sink, nil)
	wantError(t, err, Transient, "after 100000 of 131072 bytes the body ended")
	sink.wrote(t, "write", "discard")
}

// Part of H2, the rest of which is proven on a real host: whatever fails, TestMain finds no goroutine left.
func TestManyStalledFetchesLeaveNothing(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
		_, _ = w.Write(disk[:100_000])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			sink := &memory{hideReadError: true}
			_, err := direct.Fetch(t.Context(), &Opener{StallTimeout: 2 * time.Second}, pinned(url), sink, nil)
			wantError(t, err, Transient, "the server sent nothing for 2s")
			sink.wrote(t, "write", "discard")
		})
	}
	all.Wait()
}

func TestDiscardOutlivesTheFetchsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(disk)))
		_, _ = w.Write(disk[:100_000])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	sink := &contextSink{}
	_, err := direct.Fetch(ctx, &Opener{}, pinned(url), sink, func(p Progress) {
		if p.Done == 100_000 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context ended", err)
	}
	sink.wrote(t, "write", "discard")
	if sink.ended != nil {
		t.Errorf("discard was given a context that had ended: %v", sink.ended)
	}
	if _, bounded := sink.discarded.Deadline(); !bounded {
		t.Error("discard was given a context without a deadline")
	}
}

// contextSink notes whether its clean-up could still reach the host.
type contextSink struct {
	memory
	ended error
}

func (s *contextSink) Discard(ctx context.Context) error {
	s.ended = ctx.Err()
	return s.memory.Discard(ctx)
}
