// SPDX-License-Identifier: Apache-2.0

package linktest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Relay forwards TCP to one address, until it is frozen: from then on it keeps its
// connections open and takes and gives nothing, like a host that lost power.
type Relay struct {
	Addr string

	target  string
	buffer  int
	frozen  chan struct{}
	once    sync.Once
	mu      sync.Mutex
	conns   []net.Conn
	closed  bool
	carried atomic.Int64
	wg      sync.WaitGroup
}

// NewRelay listens on loopback until the test ends. buffer is the size in bytes of its
// sockets' buffers, where a sender's data can pile up.
func NewRelay(t testing.TB, target string, buffer int) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: l.Addr().String(), target: target, buffer: buffer, frozen: make(chan struct{})}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		r.closed = true
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

// Freeze stops the forwarding, for good.
func (r *Relay) Freeze() { r.once.Do(func() { close(r.frozen) }) }

// Carried is how many bytes went towards the target.
func (r *Relay) Carried() int64 { return r.carried.Load() }

func (r *Relay) serve(in net.Conn) {
	out, err := net.Dial("tcp", r.target)
	if err != nil {
		in.Close()
		return
	}
	r.mu.Lock()
	for _, c := range []net.Conn{in, out} {
		r.conns = append(r.conns, c)
		if r.closed {
			c.Close()
		}
		c.(*net.TCPConn).SetReadBuffer(r.buffer)  // a larger buffer only takes longer to fill
		c.(*net.TCPConn).SetWriteBuffer(r.buffer) // see above
	}
	r.mu.Unlock()
	r.wg.Go(func() { r.pump(out, in, &r.carried) })
	r.pump(in, out, new(atomic.Int64))
}

func (r *Relay) pump(to, from net.Conn, carried *atomic.Int64) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-r.frozen:
			return // the connections stay open, and the sender's buffers fill
		default:
		}
		if n > 0 {
			carried.Add(int64(n))
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}
