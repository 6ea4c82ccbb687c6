// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

var auth = proxyproto.AuthenticatorFunc(func(username, password string) bool {
	return username == "user" && password == "p$ss:wörd"
})

const username, password = "user", "p$ss:wörd"

func systemDial(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", request.Target)
}

// startServer serves on a loopback address until the test ends.
func startServer(t *testing.T, address string, config Config) string {
	t.Helper()
	config.Auth = auth
	config.Tunneler = &splice.Tunneler{}
	server := NewServer(config)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(ctx)
		config.Tunneler.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn.(*net.TCPConn)
}

// startOrigin greets first, as an SSH server does, then echoes to the end.
func startOrigin(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(conn, "banner ")
				_, _ = io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func TestTunnelThroughOwnClient(t *testing.T) {
	for family, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(family, func(t *testing.T) {
			origin := startOrigin(t, address)
			conn := dial(t, startServer(t, address, Config{Dial: systemDial}))
			if err := Handshake(t.Context(), conn, username, password, origin); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || string(got) != "banner hello" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestNameIsResolvedByTheProxy(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	asked := make(chan proxyproto.Request, 1)
	conn := dial(t, startServer(t, "127.0.0.1:0", Config{Dial: func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
		asked <- request
		request.Target = origin
		return systemDial(ctx, request)
	}}))
	if err := Handshake(t.Context(), conn, username, password, "exits.example:8080"); err != nil {
		t.Fatal(err)
	}
	got := <-asked
	if got.Target != "exits.example:8080" || got.Username != username || got.Protocol != proxyproto.ProtocolSOCKS5 || got.Client.String() != conn.LocalAddr().String() {
		t.Errorf("dialled for %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	address := startServer(t, "127.0.0.1:0", Config{Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
		t.Error("dialled for a client that is not let in")
		return nil, errors.New("no")
	}})
	greeting := "\x05\x01\x02"
	for _, c := range []struct{ name, sent, answer string }{
		{"no password method offered", "\x05\x01\x00", "\x05\xff"},
		{"no method offered", "\x05\x00", "\x05\xff"},
		{"wrong password", greeting + "\x01\x04user\x05wrong", "\x05\x02\x01\x01"},
		{"empty credentials", greeting + "\x01\x00\x00", "\x05\x02\x01\x01"},
		{"wrong credentials with a request behind", greeting + "\x01\x01a\x01b\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x02\x01\x01"},
		{"request without credentials", greeting + "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x02"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, address)
			_, _ = io.WriteString(conn, c.sent)
			_ = conn.CloseWrite()
			got := make([]byte, len(c.answer))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != c.answer {
				t.Errorf("answer %x, %v; want %x", got, err, c.answer)
			}
			// A reset is an end too: what came behind was not read.
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes more", n)
			}
		})
	}
	t.Run("own client names it", func(t *testing.T) {
		if err := Handshake(t.Context(), dial(t, address), "user", "wrong", "1.2.3.4:80"); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("error %v", err)
		}
	})
}

func TestDialFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		code byte
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 5},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, 4},
		{&net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, 3},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, 4},
		{context.DeadlineExceeded, 6},
		{&ReplyError{Code: 2}, 2},
		{errors.New("something else"), 1},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			address := startServer(t, "127.0.0.1:0", Config{Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
				return nil, fmt.Errorf("dial: %w", c.err)
			}})
			err := Handshake(t.Context(), dial(t, address), username, password, "1.2.3.4:80")
			var answer *ReplyError
			if !errors.As(err, &answer) || answer.Code != c.code {
				t.Errorf("error %v, want reply %d", err, c.code)
			}
		})
	}
}

func TestClientThatHangsUpEndsTheDial(t *testing.T) {
	dialling, ended := make(chan struct{}), make(chan error, 1)
	address := startServer(t, "127.0.0.1:0", Config{Dial: func(ctx context.Context, _ proxyproto.Request) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	conn := dial(t, address)
	go func() { _ = Handshake(t.Context(), conn, username, password, "1.2.3.4:80") }()
	<-dialling
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the dial goes on for a client that is gone")
	}
}

func TestBytesSentEarlyReachTheOrigin(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	held := make(chan struct{})
	address := startServer(t, "127.0.0.1:0", Config{Dial: func(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
		<-held
		return systemDial(ctx, request)
	}})
	for _, when := range []string{"with the request", "while dialling"} {
		t.Run(when, func(t *testing.T) {
			request, err := connectRequest(origin)
			if err != nil {
				t.Fatal(err)
			}
			conn := dial(t, address)
			message := "\x05\x01\x02\x01\x04user\x0a" + password + string(request)
			if when == "with the request" {
				message += "early"
			}
			_, _ = io.WriteString(conn, message)
			if when == "while dialling" {
				_, _ = io.ReadFull(conn, make([]byte, 4))
				_, _ = io.WriteString(conn, "early")
			}
			_ = conn.CloseWrite()
			select {
			case <-held:
			default:
				close(held)
			}
			got, err := io.ReadAll(conn)
			if want := "banner early"; err != nil || len(got) < len(want) || string(got[len(got)-len(want):]) != want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestSlowHandshakeIsBounded(t *testing.T) {
	address := startServer(t, "127.0.0.1:0", Config{Dial: systemDial, HandshakeTimeout: 50 * time.Millisecond})
	for name, sent := range map[string]string{"nothing": "", "half a greeting": "\x05", "half the credentials": "\x05\x01\x02\x01\x04us"} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, address)
			_, _ = io.WriteString(conn, sent)
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Error("the connection is still open")
			}
		})
	}
}

// isTimeout says whether the test's own deadline ended a read.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestShutdownWaitsForTunnelsThenEndsThem(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	tunneler := &splice.Tunneler{}
	defer tunneler.Close()
	server := NewServer(Config{Auth: auth, Dial: systemDial, Tunneler: tunneler})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn := dial(t, listener.Addr().String())
	if err := Handshake(t.Context(), conn, username, password, origin); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(ctx) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "still")
	got := make([]byte, len("banner still"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "banner still" {
		t.Errorf("while draining: %q, %v", got, err)
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := conn.Read(got); err == nil || isTimeout(err) {
		t.Errorf("after the drain the tunnel reads %v", err)
	}
}
