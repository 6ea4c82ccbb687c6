// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"net"
	"sync"
)

// Conn is a connection whose Close gives its place in the Mux back.
type Conn struct {
	net.Conn
	prefix  []byte
	release func()
	once    sync.Once
}

// Read gives the sniffed byte first, where it had to be taken off the
// connection.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 && len(p) > 0 {
		n := copy(p, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Unwrap lets a tunnel splice the connection itself.
func (c *Conn) Unwrap() (net.Conn, []byte) { return c.Conn, c.prefix }

// CloseWrite half-closes where the connection can, and closes otherwise.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close closes the connection and gives its place back, once.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// listener is one of a Mux's three.
type listener struct {
	mux    *Mux
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener(m *Mux) *listener {
	return &listener{mux: m, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands a connection to whoever accepts, or closes it when nobody will.
func (l *listener) give(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		_ = conn.Close()
	case <-l.mux.stop.Done():
		_ = conn.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
	case <-l.mux.stop.Done():
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
}

// Close makes this listener's connections be closed; the Mux goes on.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return l.mux.inner.Addr() }
