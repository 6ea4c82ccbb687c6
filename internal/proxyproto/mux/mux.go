// SPDX-License-Identifier: Apache-2.0

// Package mux serves several protocols on one port. The first byte of a
// connection decides: 0x05 is SOCKS5, 0x16 is TLS, anything else is HTTP.
package mux

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// Defaults of Config.
const (
	DefaultFirstByteTimeout = 10 * time.Second
	DefaultMaxConnections   = 8192
	DefaultMaxPending       = 1024
	DefaultMaxTLS           = 1024
)

// Config bounds what a Mux takes on. Zero values are the defaults.
type Config struct {
	// FirstByteTimeout is how long a client may stay silent.
	FirstByteTimeout time.Duration
	// MaxConnections is how many HTTP and SOCKS5 connections may be open.
	MaxConnections int
	// MaxTLS is how many TLS connections may be open; a bound of its own, so
	// that a control channel over TLS works while the proxy is full.
	MaxTLS int
	// MaxPending is how many connections may be silent at one time.
	MaxPending int
	Logf       proxyproto.Logf
}

// Mux splits one listener into three, which are served like any other.
type Mux struct {
	config Config
	inner  net.Listener

	http, socks5, tls *listener
	pending, open     atomic.Int64
	openTLS, refused  atomic.Int64

	stop     context.Context
	stopFunc context.CancelFunc
	sniffers sync.WaitGroup
	mu       sync.Mutex
	silent   map[net.Conn]struct{}
}

// New makes a Mux over inner, which it owns from then on. Serve must run for
// the listeners to get anything.
func New(inner net.Listener, config Config) *Mux {
	setDefault(&config.FirstByteTimeout, DefaultFirstByteTimeout)
	setDefault(&config.MaxConnections, DefaultMaxConnections)
	setDefault(&config.MaxTLS, DefaultMaxTLS)
	setDefault(&config.MaxPending, DefaultMaxPending)
	m := &Mux{config: config, inner: inner, silent: map[net.Conn]struct{}{}}
	m.stop, m.stopFunc = context.WithCancel(context.Background())
	m.http, m.socks5, m.tls = newListener(m), newListener(m), newListener(m)
	return m
}

func setDefault[T int | time.Duration](value *T, fallback T) {
	if *value <= 0 {
		*value = fallback
	}
}

// HTTP is the listener that gets what is neither SOCKS5 nor TLS.
func (m *Mux) HTTP() net.Listener { return m.http }

// SOCKS5 is the listener that gets what begins with 0x05.
func (m *Mux) SOCKS5() net.Listener { return m.socks5 }

// TLS is the listener that gets what begins with 0x16.
func (m *Mux) TLS() net.Listener { return m.tls }

// Stats are counts of connections.
type Stats struct {
	// Open are HTTP and SOCKS5 connections, tunnels included.
	Open int
	// OpenTLS are TLS connections.
	OpenTLS int
	// Pending are connections that have not sent a byte yet.
	Pending int
	// Refused were closed because a bound was reached, since the start.
	Refused int
}

// Stats returns the counts of this moment.
func (m *Mux) Stats() Stats {
	return Stats{
		Open: int(m.open.Load()), OpenTLS: int(m.openTLS.Load()),
		Pending: int(m.pending.Load()), Refused: int(m.refused.Load()),
	}
}

// Serve accepts until Close, then returns nil; it returns the listener's
// error when that fails for good.
func (m *Mux) Serve() error {
	defer m.sniffers.Wait()
	defer func() { _ = m.Close() }()
	var backoff time.Duration
	for {
		conn, err := m.inner.Accept()
		if m.stop.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if isTemporary(err) {
			// Out of descriptors: waiting frees some, dying frees nobody.
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			m.config.Logf.Printf("accepting connections failed, trying again in %v: %v", backoff, err)
			m.pause(backoff)
			continue
		}
		if err != nil {
			return err
		}
		backoff = 0
		m.admit(conn)
	}
}

func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return err != nil && errors.As(err, &temporary) && temporary.Temporary()
}

func (m *Mux) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.stop.Done():
	}
}

// Close stops accepting, closes connections that have not been handed on,
// and makes the three listeners' Accept fail with net.ErrClosed. Connections
// that were handed on are their servers' own.
func (m *Mux) Close() error {
	m.stopFunc()
	err := m.inner.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.silent {
		_ = conn.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// admit takes a connection on as a silent one, in a goroutine that ends with
// its first byte, with the timeout, or with Close.
func (m *Mux) admit(conn net.Conn) {
	if m.pending.Add(1) > int64(m.config.MaxPending) {
		m.pending.Add(-1)
		m.refuse(conn)
		return
	}
	m.mu.Lock()
	m.silent[conn] = struct{}{}
	stopped := m.stop.Err() != nil
	m.mu.Unlock()
	if stopped {
		_ = conn.Close()
	}
	m.sniffers.Go(func() {
		first, prefix, err := m.sniff(conn)
		m.mu.Lock()
		delete(m.silent, conn)
		m.mu.Unlock()
		m.pending.Add(-1)
		if err != nil {
			_ = conn.Close()
			return
		}
		m.handOn(conn, first, prefix)
	})
}

func (m *Mux) sniff(conn net.Conn) (first byte, prefix []byte, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(m.config.FirstByteTimeout)); err != nil {
		return 0, nil, err
	}
	first, prefix, err = firstByte(conn)
	if err != nil {
		return 0, nil, err
	}
	// Fails only on a connection that has ended meanwhile; what it brought
	// before still counts.
	_ = conn.SetReadDeadline(time.Time{})
	return first, prefix, nil
}

func (m *Mux) handOn(conn net.Conn, first byte, prefix []byte) {
	target, open, limit := m.route(first)
	if open.Add(1) > int64(limit) {
		open.Add(-1)
		if target == m.http {
			sayBusy(conn)
		}
		m.refuse(conn)
		return
	}
	target.give(&Conn{Conn: conn, prefix: prefix, release: func() { open.Add(-1) }})
}

func (m *Mux) route(first byte) (target *listener, open *atomic.Int64, limit int) {
	switch kindOf(first) {
	case kindSOCKS5:
		return m.socks5, &m.open, m.config.MaxConnections
	case kindTLS:
		return m.tls, &m.openTLS, m.config.MaxTLS
	}
	return m.http, &m.open, m.config.MaxConnections
}

type kind int

const (
	kindHTTP kind = iota
	kindSOCKS5
	kindTLS
)

func kindOf(first byte) kind {
	switch first {
	case 0x05:
		return kindSOCKS5
	case 0x16:
		return kindTLS
	}
	return kindHTTP
}

// sayBusy is best effort: the client may not have room for the answer.
func sayBusy(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("HTTP/1.1 503 Service Unavailable\r\n" + proxyproto.HeaderError +
		": too-many-connections\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
}

func (m *Mux) refuse(conn net.Conn) {
	_ = conn.Close()
	// Every power of two: a flood must not become a flood of lines.
	if n := m.refused.Add(1); n&(n-1) == 0 {
		m.config.Logf.Printf("%d connections refused so far: too many open (limits: %d proxy, %d TLS, %d silent)",
			n, m.config.MaxConnections, m.config.MaxTLS, m.config.MaxPending)
	}
}
