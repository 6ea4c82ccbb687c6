// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const username, password = "user", "secret"

// running is a server whose destinations all echo.
type running struct {
	address string
	server  *Server
	stop    context.CancelFunc
	ended   chan error
}

func start(t *testing.T, change func(*Config)) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Listener: listener, Key: agentapi.NewKey(), Version: "test",
		Credentials: []agentapi.Credential{{Username: username, Password: password}},
		Dial: func(context.Context, proxyproto.Request) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(there, there); _ = there.Close() }()
			return here, nil
		},
	}
	if change != nil {
		change(&config)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{address: listener.Addr().String(), server: server, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- server.Run(ctx); close(r.ended) }()
	t.Cleanup(func() { cancel(); server.Close(); <-r.ended })
	return r
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func (r *running) tunnel(t *testing.T, username, password string) (net.Conn, error) {
	t.Helper()
	return connect.Handshake(t.Context(), dial(t, r.address), username, password, "example.org:443")
}

func echoes(t *testing.T, tunnel net.Conn) {
	t.Helper()
	_, _ = io.WriteString(tunnel, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(tunnel, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCredentialsChangeOverTheControlChannel(t *testing.T) {
	var key agentapi.Key
	r := start(t, func(c *Config) { key = c.Key })
	tunnel, err := r.tunnel(t, username, password)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, tunnel)
	socks := dial(t, r.address)
	if err := socks5.Handshake(t.Context(), socks, username, password, "example.org:443"); err != nil {
		t.Fatal(err)
	}
	echoes(t, socks)
	client := agentapi.Client{Address: r.address, Key: key}
	status, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: "new"}})
	if err != nil || status.Version != "test" || status.Connections != 2 || r.server.Connections() != 2 {
		t.Fatalf("%+v, %v", status, err)
	}
	if _, err := r.tunnel(t, username, password); !errors.Is(err, connect.ErrUnauthorized) {
		t.Errorf("the old password: %v", err)
	}
	if _, err := r.tunnel(t, username, "new"); err != nil {
		t.Errorf("the new password: %v", err)
	}
}

// anybody is the Authenticator of an open proxy.
type anybody struct{}

func (anybody) Authenticate(string, string) bool { return true }
func (anybody) LetsAnonymousIn() bool            { return true }

func TestOnlyAnAuthenticatorThatSaysSoLetsAnonymousIn(t *testing.T) {
	anonymousSOCKS5 := func(t *testing.T, r *running) byte {
		t.Helper()
		conn := dial(t, r.address)
		_, _ = conn.Write([]byte{5, 1, 0})
		answer := make([]byte, 2)
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Fatal(err)
		}
		return answer[1]
	}
	for name, auth := range map[string]proxyproto.Authenticator{
		"credentials":         nil,
		"an ordinary decider": proxyproto.AuthenticatorFunc(func(string, string) bool { return true }),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(c *Config) { c.Auth = auth })
			if _, err := r.tunnel(t, "", ""); !errors.Is(err, connect.ErrUnauthorized) {
				t.Errorf("HTTP: %v", err)
			}
			if got := anonymousSOCKS5(t, r); got != 0xff {
				t.Errorf("SOCKS5: method %d", got)
			}
		})
	}
	r := start(t, func(c *Config) { c.Auth = anybody{} })
	tunnel, err := r.tunnel(t, "", "")
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, tunnel)
	if got := anonymousSOCKS5(t, r); got != 0 {
		t.Errorf("SOCKS5: method %d", got)
	}
	if _, err := r.tunnel(t, "anybody", "anything"); err != nil {
		t.Errorf("with credentials: %v", err)
	}
}

func TestCloseEndsTunnelsAtOnceAndTheEndOfTheContextDrains(t *testing.T) {
	for name, stop := range map[string]func(*running){
		"Close":                        func(r *running) { r.server.Close() },
		"Close while it drains":        func(r *running) { r.stop(); r.server.Close() },
		"the drain time after the end": func(r *running) { r.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(c *Config) {
				c.Limits.DrainSeconds = 3600
				if name == "the drain time after the end" {
					c.Limits.DrainSeconds = 1
				}
			})
			tunnel, err := r.tunnel(t, username, password)
			if err != nil {
				t.Fatal(err)
			}
			echoes(t, tunnel)
			stop(r)
			if err := <-r.ended; err != nil {
				t.Errorf("run ended with %v", err)
			}
			if _, err := tunnel.Read(make([]byte, 1)); err == nil {
				t.Error("a tunnel outlived its server")
			}
			if _, err := net.Dial("tcp", r.address); err == nil {
				t.Error("the port is still served")
			}
		})
	}
}

func TestCloseWithoutRunFreesThePort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(Config{Listener: listener, Credentials: []agentapi.Credential{{Username: username, Password: password}}})
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	server.Close()
	again, err := net.Listen("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if err := server.Run(t.Context()); err != nil {
		t.Errorf("run after close: %v", err)
	}
}

func TestNoCredentialsAreRefused(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a server that nobody can use was made")
	}
}

func TestServersShareDescriptors(t *testing.T) {
	for _, c := range []struct {
		descriptors   uint64
		servers, want int
	}{
		{512, 1, 1}, {0, 1, 1}, {3512, 1, 1000}, {3512, 20, 50}, {1 << 63, 1, (1<<30 - 512) / 3},
	} {
		if got := connectionsWith(c.descriptors, c.servers); got != c.want {
			t.Errorf("%d descriptors, %d servers: %d connections, want %d", c.descriptors, c.servers, got, c.want)
		}
	}
}
