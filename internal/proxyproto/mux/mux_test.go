// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// start serves a Mux on loopback until the test ends.
func start(t *testing.T, config Config) (*Mux, string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, inner, config), inner.Addr().String()
}

func serve(t *testing.T, inner net.Listener, config Config) *Mux {
	t.Helper()
	m := New(inner, config)
	done := make(chan error, 1)
	go func() { done <- m.Serve() }()
	t.Cleanup(func() {
		_ = m.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return m
}

// label answers each connection of a listener with a name and what it sent.
func label(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		buffer := make([]byte, 64)
		n, _ := conn.Read(buffer)
		_, _ = io.WriteString(conn, name+":"+string(buffer[:n]))
		conn.Close()
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestRoutesByFirstByte(t *testing.T) {
	m, address := start(t, Config{})
	go label(m.HTTP(), "http")
	go label(m.SOCKS5(), "socks5")
	go label(m.TLS(), "tls")
	for first, want := range map[string]string{
		"\x05\x01\x02": "socks5", "\x16\x03\x01": "tls", "GET /": "http", "\x00": "http", "\xff\xff": "http", "\x04": "http",
	} {
		conn := dial(t, address)
		_, _ = io.WriteString(conn, first)
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != want+":"+first {
			t.Errorf("%q: answer %q, %v; want %s with every byte", first, got, err, want)
		}
	}
	eventually(t, "every place is given back", func() bool { return m.Stats() == Stats{} })
}

// pipeListener hands out one end of pipes: connections that are not TCP.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestConnectionsThatAreNotTCPLoseNoByte(t *testing.T) {
	inner := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	m := serve(t, inner, Config{})
	client, served := net.Pipe()
	defer client.Close()
	inner.conns <- served
	go func() { _, _ = io.WriteString(client, "GET") }()
	conn, err := m.HTTP().Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make([]byte, 3)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "GET" {
		t.Errorf("read %q, %v", got, err)
	}
}

// A client that sends and is gone at once has still sent.
func TestShortLivedClientIsHandedOn(t *testing.T) {
	m, address := start(t, Config{})
	go label(m.HTTP(), "http")
	for range 50 {
		conn := dial(t, address)
		_, _ = io.WriteString(conn, "x")
		_ = conn.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "http:x" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestSilentClientIsClosedAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		m := New(inner, Config{FirstByteTimeout: 7 * time.Second})
		done := make(chan error, 1)
		go func() { done <- m.Serve() }()
		begin := time.Now()
		client, served := net.Pipe()
		inner.conns <- served
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a silent client read %v", err)
		}
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("closed after %v", took)
		}
		_ = m.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestBounds(t *testing.T) {
	t.Run("a silent client too many is closed at once", func(t *testing.T) {
		m, address := start(t, Config{MaxPending: 2, FirstByteTimeout: time.Hour})
		dial(t, address)
		dial(t, address)
		eventually(t, "two are pending", func() bool { return m.Stats().Pending == 2 })
		if _, err := dial(t, address).Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("the third silent client read %v", err)
		}
		if m.Stats().Refused != 1 {
			t.Errorf("stats %+v", m.Stats())
		}
	})
	t.Run("a client too many gets 503, and the control channel still works", func(t *testing.T) {
		m, address := start(t, Config{MaxConnections: 1})
		_, _ = io.WriteString(dial(t, address), "\x05")
		held, err := m.SOCKS5().Accept()
		if err != nil {
			t.Fatal(err)
		}
		extra := dial(t, address)
		_, _ = io.WriteString(extra, "G")
		answer, err := http.ReadResponse(bufio.NewReader(extra), nil)
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one HTTP client too many got %v, %v", answer, err)
		}
		socks := dial(t, address)
		_, _ = io.WriteString(socks, "\x05")
		if n, err := socks.Read(make([]byte, 1)); err == nil {
			t.Errorf("one SOCKS5 client too many read %d bytes", n)
		}
		go label(m.TLS(), "tls")
		control := dial(t, address)
		_, _ = io.WriteString(control, "\x16")
		if got, err := io.ReadAll(control); err != nil || string(got) != "tls:\x16" {
			t.Errorf("the control channel got %q, %v", got, err)
		}
		held.Close()
		held.Close()
		eventually(t, "the place is given back once", func() bool { return m.Stats().Open == 0 })
	})
}

// isTimeout says whether the test's own deadline ended a read.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestCloseEndsEverythingThatWaits(t *testing.T) {
	m, address := start(t, Config{FirstByteTimeout: time.Hour})
	silent, unaccepted := dial(t, address), dial(t, address)
	_, _ = io.WriteString(unaccepted, "GET")
	eventually(t, "both have arrived", func() bool { s := m.Stats(); return s.Pending == 1 && s.Open == 1 })
	_ = m.Close()
	for _, conn := range []net.Conn{silent, unaccepted} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("after Close a waiting client read %v", err)
		}
	}
	if _, err := m.HTTP().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

// failingListener fails a few times as a process out of descriptors does.
type failingListener struct {
	net.Listener
	failures int
}

type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, temporaryError{errors.New("too many open files")}
	}
	return l.Listener.Accept()
}

func TestAcceptGoesOnAfterTemporaryErrors(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := serve(t, &failingListener{inner, 3}, Config{})
	go label(m.HTTP(), "http")
	conn := dial(t, inner.Addr().String())
	_, _ = io.WriteString(conn, "x")
	if got, _ := io.ReadAll(conn); string(got) != "http:x" {
		t.Errorf("got %q", got)
	}
}

// bytesConn is a client that sent some bytes and ended.
type bytesConn struct {
	net.Conn
	*bytes.Reader
}

func (c bytesConn) Read(p []byte) (int, error)      { return c.Reader.Read(p) }
func (c bytesConn) SetReadDeadline(time.Time) error { return nil }

// FuzzFirstBytes: whatever comes, it goes to the listener of its first byte,
// whole.
func FuzzFirstBytes(f *testing.F) {
	for _, seed := range []string{"\x05\x01\x02", "\x16\x03\x01\x02", "GET / HTTP/1.1\r\n", "\x00", ""} {
		f.Add([]byte(seed))
	}
	m := New(&pipeListener{closed: make(chan struct{})}, Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		conn := bytesConn{Reader: bytes.NewReader(data)}
		first, prefix, err := m.sniff(conn)
		if len(data) == 0 {
			if err == nil {
				t.Error("a first byte came from nothing")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := m.http
		switch data[0] {
		case 0x05:
			want = m.socks5
		case 0x16:
			want = m.tls
		}
		if target, _, _ := m.route(first); target != want {
			t.Errorf("%q goes to another listener", data)
		}
		if got, err := io.ReadAll(&Conn{Conn: conn, prefix: prefix}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("sent %q, got %q, %v", data, got, err)
		}
	})
}
