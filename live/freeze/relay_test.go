// SPDX-License-Identifier: Apache-2.0

//go:build live

package freeze

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	// smallBuffer in bytes, on both ends of each connection to the relay: all that a client can write ahead. It is far below the 2 MiB that
	// sshd takes ahead on a channel, so that a client whose bytes are not read stands in its TCP connection, and nowhere before.
	smallBuffer = 64 << 10
	// pace of the relay in bytes a second: slower than a host, so that all that is on its way waits before the relay.
	pace = 24 << 20
	// freezeAfter so many bytes of one connection.
	freezeAfter = 24 << 20
	// lookEvery is how often a client's connection is looked at: so long before it was seen to be closed, at most, it was.
	lookEvery = 2 * time.Millisecond
)

// relay passes TCP connections of this process on to one host. Once it is frozen it takes connections, reads nothing more, and ends none: for
// its clients the host has fallen silent.
type relay struct {
	t        *testing.T
	listener net.Listener
	to       string
	limit    *rate.Limiter
	ctx      context.Context // ends with the relay
	workers  sync.WaitGroup

	mu      sync.Mutex
	open    chan struct{} // closed while the relay passes bytes on
	conns   []*conn
	tripped bool

	// frozen is closed when the relay froze by itself, for the first time, at frozenAt.
	frozen   chan struct{}
	frozenAt time.Time
}

// conn is one connection through the relay.
type conn struct {
	client *net.TCPConn
	// fd is the client's own end, in this process, and port its port.
	fd, port int

	mu sync.Mutex
	// seenOpen is when the client's end was last seen open; closed says that it is not any more, as was seen at seenClosed.
	seenOpen, seenClosed time.Time
	closed               bool
	passed               int64
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, smallBuffer) })
		return errors.Join(err, set)
	}}
	listener, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &relay{
		t: t, listener: listener, to: to, limit: rate.NewLimiter(pace, smallBuffer), ctx: ctx, open: make(chan struct{}), frozen: make(chan struct{}),
	}
	close(r.open)
	r.workers.Go(r.accept)
	r.workers.Go(r.look)
	t.Cleanup(func() {
		cancel()
		listener.Close()
		r.workers.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

// thaw passes on what was kept, and all that comes, for good.
func (r *relay) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
	r.tripped = true
}

// trip freezes the relay, the first time.
func (r *relay) trip() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tripped {
		return
	}
	r.tripped, r.open, r.frozenAt = true, make(chan struct{}), time.Now()
	close(r.frozen)
}

// wait until the relay is open; an error when it ends.
func (r *relay) wait() error {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// all are the connections so far.
func (r *relay) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*conn(nil), r.conns...)
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		c := &conn{client: client.(*net.TCPConn), port: client.RemoteAddr().(*net.TCPAddr).Port, seenOpen: time.Now()}
		if c.fd, err = ownEnd(c.port); err != nil {
			c.closed = true // it has gone already
		}
		r.mu.Lock()
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		r.workers.Go(func() { r.serve(c) })
	}
}

// ownEnd finds the client's end of a connection among the descriptors of this process, and gives it a small send buffer.
func ownEnd(port int) (fd int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err == nil && portOf(fd) == port {
			return fd, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, smallBuffer)
		}
	}
	return 0, os.ErrNotExist
}

// portOf is the port of an IPv4 socket; 0 where the descriptor is none.
func portOf(fd int) int {
	if name, err := unix.Getsockname(fd); err == nil {
		if v4, ok := name.(*unix.SockaddrInet4); ok {
			return v4.Port
		}
	}
	return 0
}

// look notes when clients close their ends.
func (r *relay) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		for _, c := range r.all() {
			c.look()
		}
	}
}

func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	now := time.Now() // before the look: open at least until then
	if portOf(c.fd) != c.port {
		c.closed, c.seenClosed = true, now
		return
	}
	c.seenOpen = now
}

// killed says when the client closed its end, and whether it did.
func (c *conn) killed() (at time.Time, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seenOpen, c.closed
}

// bytes that came from the client.
func (c *conn) bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

func (r *relay) serve(c *conn) {
	defer c.client.Close()
	stop := context.AfterFunc(r.ctx, func() { c.client.Close() })
	defer stop()
	if r.wait() != nil {
		return
	}
	var dialer net.Dialer
	up, err := dialer.DialContext(r.ctx, "tcp", r.to)
	if err != nil {
		r.t.Errorf("the relay: %v", err)
		return
	}
	defer up.Close()
	defer context.AfterFunc(r.ctx, func() { up.Close() })()
	back := make(chan struct{})
	go func() {
		defer close(back)
		r.pass(c.client, up, nil)
	}()
	r.pass(up.(*net.TCPConn), c.client, c)
	<-back
}

// pass copies from one side to the other; from a client, in pace, and until it is time to freeze.
func (r *relay) pass(to *net.TCPConn, from io.Reader, client *conn) {
	defer to.CloseWrite()
	buf := make([]byte, smallBuffer/4)
	for r.wait() == nil {
		n, err := from.Read(buf)
		if client != nil && n > 0 {
			r.count(client, n)
		}
		if n > 0 && (r.wait() != nil || write(to, buf[:n]) != nil) || err != nil {
			return
		}
	}
}

func (r *relay) count(c *conn, n int) {
	c.mu.Lock()
	c.passed += int64(n)
	full := c.passed >= freezeAfter
	c.mu.Unlock()
	if full {
		r.trip()
	}
	_ = r.limit.WaitN(r.ctx, n) // it ends with the relay
}

func write(to io.Writer, p []byte) error {
	_, err := to.Write(p)
	return err
}
