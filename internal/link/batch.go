// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// batchSize is how much is gathered while the last batch is on its way into the kernel.
const batchSize = 256 << 10

var errBatchClosed = errors.New("the connection was closed")

// batch is a connection whose writes are gathered, and given to the kernel in a goroutine of its own. The SSH library writes each packet of 32 KiB in two
// pieces, and encrypts the next only then: so the two go on side by side, and both ends work on larger pieces. What is written is on its way at once; an
// error shows at a later Write. The goroutine ends with Close, which the SSH library calls as soon as the connection under it ends.
type batch struct {
	net.Conn
	socket syscall.RawConn // nil where it is no TCP

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte // for its turn
	err     error  // no more is sent
}

func newBatch(conn net.Conn) *batch {
	b := &batch{Conn: conn, waiting: make([]byte, 0, batchSize)}
	b.changed.L = &b.mu
	if tcp, ok := conn.(*net.TCPConn); ok {
		b.socket, _ = tcp.SyscallConn() // nil when it is closed
	}
	go b.run()
	return b
}

// Write returns when there was room for all of p.
func (b *batch) Write(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n < len(p) {
		for len(b.waiting) == batchSize && b.err == nil {
			b.changed.Wait()
		}
		if b.err != nil {
			return n, b.err
		}
		took := min(len(p)-n, batchSize-len(b.waiting))
		b.waiting = append(b.waiting, p[n:n+took]...)
		n += took
		b.changed.Broadcast()
	}
	return n, nil
}

// Read has the kernel acknowledge what came without its usual delay: sshd does not send a small answer while an earlier one is not acknowledged.
func (b *batch) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.socket != nil {
		_ = b.socket.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) // without it all goes on, slower
		})
	}
	return n, err
}

func (b *batch) run() {
	spare := make([]byte, 0, batchSize)
	for {
		b.mu.Lock()
		for len(b.waiting) == 0 && b.err == nil {
			b.changed.Wait()
		}
		if b.err != nil {
			b.mu.Unlock()
			return
		}
		going := b.waiting
		b.waiting = spare
		b.changed.Broadcast()
		b.mu.Unlock()
		if _, err := b.Conn.Write(going); err != nil {
			b.end(err)
		}
		spare = going[:0]
	}
}

func (b *batch) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.changed.Broadcast()
}

// Close does not wait for what was not sent yet.
func (b *batch) Close() error {
	b.end(errBatchClosed)
	return b.Conn.Close()
}
