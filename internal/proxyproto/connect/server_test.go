// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

const username, password = "user", "p$ss:wörd"

var auth = proxyproto.AuthenticatorFunc(func(u, p string) bool { return u == username && p == password })

func systemDial(ctx context.Context, request proxyproto.Request) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", request.Target)
}

// startServer serves on a loopback address until the test ends.
func startServer(t *testing.T, address string, config Config) (*Server, string) {
	t.Helper()
	config.Auth = auth
	config.Tunneler = &splice.Tunneler{}
	if config.Dial == nil {
		config.Dial = systemDial
	}
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
	return server, listener.Addr().String()
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

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// ask sends a request as it stands and returns the answer.
func ask(t *testing.T, conn net.Conn, reader *bufio.Reader, request string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	answer, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer to %q: %v", request, err)
	}
	return answer
}

var authorization = "Proxy-Authorization: " + basic(username, password) + "\r\n"

func TestConnectThroughOwnClient(t *testing.T) {
	for family, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(family, func(t *testing.T) {
			origin := startOrigin(t, address)
			_, proxy := startServer(t, address, Config{})
			conn := dial(t, proxy)
			tunnel, err := Handshake(t.Context(), conn, username, password, origin)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(tunnel, "hello")
			_ = tunnel.(interface{ CloseWrite() error }).CloseWrite()
			if got, err := io.ReadAll(tunnel); err != nil || string(got) != "banner hello" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestBytesBehindConnectReachTheOrigin(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	_, proxy := startServer(t, "127.0.0.1:0", Config{})
	conn := dial(t, proxy)
	early := strings.Repeat("early bytes ", 2000)
	go func() {
		_, _ = io.WriteString(conn, "CONNECT "+origin+" HTTP/1.1\r\nHost: elsewhere.example\r\n"+authorization+"\r\n"+early)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if want := established + "banner " + early; err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestCredentialsAreAlwaysRequired(t *testing.T) {
	_, proxy := startServer(t, "127.0.0.1:0", Config{Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
		t.Error("dialled for a client that is not let in")
		return nil, errors.New("no")
	}})
	for name, header := range map[string]string{
		"none":                "",
		"wrong password":      "Proxy-Authorization: " + basic(username, "wrong") + "\r\n",
		"wrong username":      "Proxy-Authorization: " + basic("other", password) + "\r\n",
		"empty":               "Proxy-Authorization: " + basic("", "") + "\r\n",
		"not base64":          "Proxy-Authorization: Basic ###\r\n",
		"another scheme":      "Proxy-Authorization: Bearer " + basic(username, password)[6:] + "\r\n",
		"for the origin only": "Authorization: " + basic(username, password) + "\r\n",
		"two headers":         authorization + authorization,
	} {
		for _, request := range []string{"CONNECT 127.0.0.1:1 HTTP/1.1\r\n", "GET http://127.0.0.1:1/ HTTP/1.1\r\n", "GET / HTTP/1.1\r\n"} {
			t.Run(name+" "+request[:8], func(t *testing.T) {
				conn := dial(t, proxy)
				reader := bufio.NewReader(conn)
				answer := ask(t, conn, reader, request+"Host: h\r\n"+header+"\r\n")
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode != http.StatusProxyAuthRequired || answer.Header.Get("Proxy-Authenticate") != `Basic realm="egress"` {
					t.Errorf("answer %v %v", answer.Status, answer.Header)
				}
				// Clients try again on the same connection.
				if again := ask(t, conn, reader, request+"Host: h\r\n"+header+"\r\n"); again.StatusCode != http.StatusProxyAuthRequired {
					t.Errorf("second answer %v", again.Status)
				}
			})
		}
	}
	t.Run("own client names it", func(t *testing.T) {
		if _, err := Handshake(t.Context(), dial(t, proxy), username, "wrong", "1.2.3.4:80"); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("error %v", err)
		}
	})
}

func TestChallengeThenTunnelOnOneConnection(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	_, proxy := startServer(t, "127.0.0.1:0", Config{})
	conn := dial(t, proxy)
	reader := bufio.NewReader(conn)
	answer := ask(t, conn, reader, "CONNECT "+origin+" HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, _ = io.Copy(io.Discard, answer.Body); answer.StatusCode != http.StatusProxyAuthRequired {
		t.Fatal(answer.Status)
	}
	if answer = ask(t, conn, reader, "CONNECT "+origin+" HTTP/1.1\r\nHost: h\r\n"+authorization+"\r\n"); answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(reader); err != nil || string(got) != "banner " {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDialFailures(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		reason proxyproto.Failure
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 502, proxyproto.FailureConnectionRefused},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, 502, proxyproto.FailureHostUnreachable},
		{&net.OpError{Op: "dial", Err: syscall.ENETUNREACH}, 502, proxyproto.FailureNetworkUnreachable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, 502, proxyproto.FailureName},
		{context.DeadlineExceeded, 504, proxyproto.FailureTimeout},
		{&StatusError{Code: 403, Reason: "destination-refused"}, 403, proxyproto.FailurePolicy},
		{errors.New("something else"), 502, proxyproto.FailureGeneral},
	} {
		_, proxy := startServer(t, "127.0.0.1:0", Config{Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
			return nil, fmt.Errorf("dial: %w", c.err)
		}})
		for _, request := range []string{"CONNECT 1.2.3.4:80 HTTP/1.1\r\n", "GET http://1.2.3.4/ HTTP/1.1\r\n"} {
			t.Run(c.err.Error()+" "+request[:8], func(t *testing.T) {
				conn := dial(t, proxy)
				answer := ask(t, conn, bufio.NewReader(conn), request+"Host: h\r\n"+authorization+"\r\n")
				body, _ := io.ReadAll(answer.Body)
				if answer.StatusCode != c.status || answer.Header.Get(proxyproto.HeaderError) != string(c.reason) {
					t.Errorf("answer %v %v, want %d %s", answer.Status, answer.Header, c.status, c.reason)
				}
				if strings.TrimSpace(string(body)) != c.reason.Sentence() {
					t.Errorf("body %q", body)
				}
			})
		}
		t.Run(c.err.Error()+" own client", func(t *testing.T) {
			_, err := Handshake(t.Context(), dial(t, proxy), username, password, "1.2.3.4:80")
			if got := proxyproto.FailureOf(err); got != c.reason {
				t.Errorf("error %v is %s, want %s", err, got, c.reason)
			}
		})
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	_, proxy := startServer(t, "127.0.0.1:0", Config{Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}})
	for _, line := range []string{
		"CONNECT example.org", "CONNECT example.org:0", "CONNECT example.org:65536", "CONNECT :80", "CONNECT [fe80::1%25eth0]:80",
		"GET /", "GET https://example.org/", "GET ftp://example.org/", "GET http://example.org:0/", "OPTIONS *",
	} {
		t.Run(line, func(t *testing.T) {
			conn := dial(t, proxy)
			answer := ask(t, conn, bufio.NewReader(conn), line+" HTTP/1.1\r\nHost: h\r\n"+authorization+"\r\n")
			if answer.StatusCode != http.StatusBadRequest {
				t.Errorf("answer %v", answer.Status)
			}
		})
	}
}

func TestHeaderBounds(t *testing.T) {
	_, proxy := startServer(t, "127.0.0.1:0", Config{HeaderTimeout: 100 * time.Millisecond, MaxHeaderBytes: 4096, IdleTimeout: 100 * time.Millisecond})
	t.Run("a header that drips in is cut off", func(t *testing.T) {
		conn := dial(t, proxy)
		_, _ = io.WriteString(conn, "CONNECT example.org:443 HTTP/1.1\r\nX-")
		if _, err := io.ReadAll(conn); isTimeout(err) {
			t.Error("the connection is still open")
		}
	})
	t.Run("a header too large is refused", func(t *testing.T) {
		conn := dial(t, proxy)
		go func() {
			_, _ = io.WriteString(conn, "CONNECT example.org:443 HTTP/1.1\r\n"+strings.Repeat("X-Filler: "+strings.Repeat("x", 100)+"\r\n", 200))
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("answer %v, %v", answer, err)
		}
	})
	t.Run("a connection that waits for nothing is closed", func(t *testing.T) {
		conn := dial(t, proxy)
		reader := bufio.NewReader(conn)
		answer := ask(t, conn, reader, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		_, _ = io.Copy(io.Discard, answer.Body)
		if _, err := reader.ReadByte(); err != io.EOF {
			t.Errorf("the idle connection: %v", err)
		}
	})
}

func TestClientThatHangsUpEndsTheDial(t *testing.T) {
	dialling, ended := make(chan struct{}), make(chan struct{})
	_, proxy := startServer(t, "127.0.0.1:0", Config{Dial: func(ctx context.Context, _ proxyproto.Request) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	conn := dial(t, proxy)
	_, _ = io.WriteString(conn, "CONNECT 1.2.3.4:80 HTTP/1.1\r\nHost: h\r\n"+authorization+"\r\n")
	<-dialling
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the dial goes on for a client that is gone")
	}
}

func TestShutdownWaitsForTunnelsThenEndsThem(t *testing.T) {
	origin := startOrigin(t, "127.0.0.1:0")
	server, proxy := startServer(t, "127.0.0.1:0", Config{})
	conn := dial(t, proxy)
	tunnel, err := Handshake(t.Context(), conn, username, password, origin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(ctx) }()
	_, _ = io.WriteString(tunnel, "still")
	got := make([]byte, len("banner still"))
	if _, err := io.ReadFull(tunnel, got); err != nil || string(got) != "banner still" {
		t.Errorf("while draining: %q, %v", got, err)
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := tunnel.Read(got); err == nil || isTimeout(err) {
		t.Errorf("after the drain the tunnel reads %v", err)
	}
}
