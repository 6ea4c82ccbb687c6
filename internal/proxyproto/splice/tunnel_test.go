// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// opaque hides that a connection is TCP, so that it cannot be spliced.
type opaque struct{ net.Conn }

func (o opaque) CloseWrite() error { return o.Conn.(*net.TCPConn).CloseWrite() }

func (o opaque) SetLinger(seconds int) error { return o.Conn.(*net.TCPConn).SetLinger(seconds) }

func plain(conn net.Conn) net.Conn  { return conn }
func hidden(conn net.Conn) net.Conn { return opaque{conn} }

func newRig(ctx context.Context, t testing.TB, tunneler *Tunneler, address string, wrap func(net.Conn) net.Conn, early []byte) *rig {
	t.Helper()
	client, clientSide := tcpPair(t, address)
	origin, originSide := tcpPair(t, address)
	r := &rig{client: client, origin: origin, done: make(chan result, 1)}
	go func() {
		counts, err := tunneler.Tunnel(ctx, wrap(clientSide), wrap(originSide), early)
		r.done <- result{counts, err}
	}()
	return r
}

// forEachWay runs a test over both families, spliced and copied.
func forEachWay(t *testing.T, test func(t *testing.T, address string, wrap func(net.Conn) net.Conn)) {
	for family, address := range families {
		for way, wrap := range map[string]func(net.Conn) net.Conn{"spliced": plain, "copied": hidden} {
			t.Run(family+" "+way, func(t *testing.T) { test(t, address, wrap) })
		}
	}
}

func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	data, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("reading to the end: %v", err)
	}
	return string(data)
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestHalfCloseByClient(t *testing.T) {
	forEachWay(t, func(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
		var tunneler Tunneler
		defer tunneler.Close()
		r := newRig(t.Context(), t, &tunneler, address, wrap, []byte("early "))
		write(t, r.client, "request")
		_ = r.client.CloseWrite()
		if got := readAll(t, r.origin); got != "early request" {
			t.Errorf("the origin got %q", got)
		}
		write(t, r.origin, "answer after the client's end")
		_ = r.origin.CloseWrite()
		if got := readAll(t, r.client); got != "answer after the client's end" {
			t.Errorf("the client got %q", got)
		}
		if res := r.wait(t); res.err != nil || res.counts != (Counts{Up: 13, Down: 29}) {
			t.Errorf("the tunnel ended with %+v", res)
		}
	})
}

func TestHalfCloseByOrigin(t *testing.T) {
	forEachWay(t, func(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
		var tunneler Tunneler
		defer tunneler.Close()
		r := newRig(t.Context(), t, &tunneler, address, wrap, nil)
		write(t, r.origin, "banner")
		_ = r.origin.CloseWrite()
		if got := readAll(t, r.client); got != "banner" {
			t.Errorf("the client got %q", got)
		}
		write(t, r.client, "still talking")
		_ = r.client.CloseWrite()
		if got := readAll(t, r.origin); got != "still talking" {
			t.Errorf("the origin got %q", got)
		}
		if res := r.wait(t); res.err != nil {
			t.Errorf("the tunnel ended with %v", res.err)
		}
	})
}

func TestBigTransferBothWaysAtOnce(t *testing.T) {
	const size = 48 << 20
	forEachWay(t, func(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
		var tunneler Tunneler
		defer tunneler.Close()
		r := newRig(t.Context(), t, &tunneler, address, wrap, nil)
		var wg sync.WaitGroup
		for seed, ends := range [][2]*net.TCPConn{{r.client, r.origin}, {r.origin, r.client}} {
			sent, received := sha256.New(), sha256.New()
			var n int64
			var one sync.WaitGroup
			one.Go(func() {
				source := rand.NewChaCha8([32]byte{byte(seed)})
				if _, err := io.CopyN(io.MultiWriter(ends[0], sent), source, size); err != nil {
					t.Error(err)
				}
				_ = ends[0].CloseWrite()
			})
			one.Go(func() {
				var err error
				if n, err = io.Copy(received, slowly{ends[1]}); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				one.Wait()
				if n != size || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
					t.Errorf("direction %d: %d bytes arrived of %d, or others than were sent", seed, n, size)
				}
			})
		}
		wg.Wait()
		if res := r.wait(t); res.err != nil || res.counts != (Counts{Up: size, Down: size}) {
			t.Errorf("the tunnel ended with %+v", res)
		}
	})
}

// slowly reads in odd pieces, so that pipes fill up and drain in parts.
type slowly struct{ net.Conn }

func (s slowly) Read(p []byte) (int, error) { return s.Conn.Read(p[:min(len(p), 7001)]) }

func TestResetIsPassedOn(t *testing.T) {
	forEachWay(t, func(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
		var tunneler Tunneler
		defer tunneler.Close()
		r := newRig(t.Context(), t, &tunneler, address, wrap, nil)
		write(t, r.origin, "half an ans")
		_, _ = io.ReadFull(r.client, make([]byte, 11))
		_ = r.origin.SetLinger(0)
		_ = r.origin.Close()
		if _, err := r.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client read %v: a torn stream looks like a whole one", err)
		}
		if res := r.wait(t); res.err == nil {
			t.Error("the tunnel's end by reset is no error")
		}
	})
}

func TestContextEndsTunnel(t *testing.T) {
	forEachWay(t, func(t *testing.T, address string, wrap func(net.Conn) net.Conn) {
		cause := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		var tunneler Tunneler
		defer tunneler.Close()
		r := newRig(ctx, t, &tunneler, address, wrap, nil)
		write(t, r.client, "x")
		_, _ = io.ReadFull(r.origin, make([]byte, 1))
		cancel(cause)
		if res := r.wait(t); !errors.Is(res.err, cause) {
			t.Errorf("the tunnel ended with %v", res.err)
		}
		if n := tunneler.Active(); n != 0 {
			t.Errorf("%d tunnels active", n)
		}
	})
}

// prefixed is a wrapper as mux and connect have it.
type prefixed struct {
	net.Conn
	prefix []byte
}

func (p prefixed) Unwrap() (net.Conn, []byte) { return p.Conn, p.prefix }

func TestUnwrapGivesPrefixesInOrder(t *testing.T) {
	var tunneler Tunneler
	defer tunneler.Close()
	client, clientSide := tcpPair(t, "127.0.0.1:0")
	origin, originSide := tcpPair(t, "127.0.0.1:0")
	done := make(chan error, 1)
	go func() {
		_, err := tunneler.Tunnel(t.Context(),
			prefixed{prefixed{clientSide, []byte("three ")}, []byte("two ")}, prefixed{originSide, []byte("hello ")}, []byte("one "))
		done <- err
	}()
	write(t, client, "four")
	_ = client.CloseWrite()
	if got := readAll(t, origin); got != "one two three four" {
		t.Errorf("the origin got %q", got)
	}
	write(t, origin, "client")
	_ = origin.Close()
	if got := readAll(t, client); got != "hello client" {
		t.Errorf("the client got %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientSide := net.Pipe()
		origin, originSide := net.Pipe()
		tunneler := Tunneler{IdleTimeout: time.Minute}
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := tunneler.Tunnel(t.Context(), clientSide, originSide, nil)
			done <- err
		}()
		for range 5 {
			time.Sleep(50 * time.Second)
			go func() { _, _ = client.Write([]byte("x")) }()
			if _, err := origin.Read(make([]byte, 1)); err != nil {
				t.Fatalf("a busy tunnel was ended: %v", err)
			}
		}
		if err := <-done; !errors.Is(err, ErrIdle) {
			t.Errorf("an idle tunnel ended with %v", err)
		}
		if took := time.Since(start); took != 310*time.Second {
			t.Errorf("an idle tunnel ended after %v, its last byte was at 250s", took)
		}
	})
}
