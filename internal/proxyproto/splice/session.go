// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// session is what the two directions of one tunnel share.
type session struct {
	client, upstream net.Conn
	// last is when a byte went by, as time since start: a monotonic clock.
	start time.Time
	last  atomic.Int64
	idle  bool

	mu    sync.Mutex
	cause error
}

func newSession(client, upstream net.Conn) *session {
	return &session{client: client, upstream: upstream, start: time.Now()}
}

// touch notes that a byte went by.
func (s *session) touch() {
	if s.idle {
		s.last.Store(int64(time.Since(s.start)))
	}
}

// watchIdle aborts the session when nothing went by for timeout; the
// function that it returns ends the watch. The timer runs once a timeout,
// not once a byte.
func (s *session) watchIdle(timeout time.Duration) (stop func()) {
	if timeout <= 0 {
		return func() {}
	}
	s.idle = true
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		left := timeout - (time.Since(s.start) - time.Duration(s.last.Load()))
		if left <= 0 {
			s.abort(ErrIdle)
			return
		}
		timer.Reset(left)
	}
	mu.Lock()
	timer = time.AfterFunc(timeout, check)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// abort ends both directions; the first cause stands.
func (s *session) abort(cause error) {
	s.mu.Lock()
	first := s.cause == nil
	if first {
		s.cause = cause
	}
	s.mu.Unlock()
	if first {
		breakOff(s.client)
		breakOff(s.upstream)
		s.closeBoth()
	}
}

func (s *session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

func (s *session) closeBoth() {
	_ = s.client.Close()
	_ = s.upstream.Close()
}

// breakOff closes a connection so that the peer cannot take it for a whole
// stream: by a TCP reset, and without TLS's notice of an orderly end.
func breakOff(conn net.Conn) {
	inner, _ := unwrapAll(conn)
	if tls, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner, _ = unwrapAll(tls.NetConn())
	}
	if tcp, ok := inner.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = inner.Close()
}
