// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
)

func address(config agentapi.Config, host string) string {
	return net.JoinHostPort(host, strconv.Itoa(config.ListenPort))
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn.(*net.TCPConn)
}

// startEcho echoes until the end of each connection.
func startEcho(t *testing.T, address string) string {
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
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// tunnels are the two ways to a tunnel.
var tunnels = map[string]func(ctx context.Context, conn net.Conn, username, password, target string) (net.Conn, error){
	"HTTP": connect.Handshake,
	"SOCKS5": func(ctx context.Context, conn net.Conn, username, password, target string) (net.Conn, error) {
		return conn, socks5.Handshake(ctx, conn, username, password, target)
	},
}

func echoes(t *testing.T, tunnel net.Conn, text string) {
	t.Helper()
	_, _ = io.WriteString(tunnel, text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(tunnel, got); err != nil || string(got) != text {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAgentServesBothProtocolsOnBothFamilies(t *testing.T) {
	config := testConfig(t)
	echo4, echo6 := startEcho(t, "127.0.0.1:0"), startEcho(t, "[::1]:0")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "proxy headers: "+r.Header.Get("Proxy-Authorization"))
	}))
	defer web.Close()
	webHost := strings.TrimPrefix(web.URL, "http://")
	config.Destinations.Reflectors = []string{echo4, echo6, webHost}
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	agent := startProcess(t, path, config)
	for _, host := range []string{"127.0.0.1", "::1"} {
		for protocol, open := range tunnels {
			for _, target := range []string{echo4, echo6} {
				t.Run(protocol+" from "+host+" to "+target, func(t *testing.T) {
					tunnel, err := open(t.Context(), dial(t, address(config, host)), username, password, target)
					if err != nil {
						t.Fatal(err)
					}
					echoes(t, tunnel, "hello")
				})
			}
			t.Run(protocol+" from "+host+": wrong credentials", func(t *testing.T) {
				_, err := open(t.Context(), dial(t, address(config, host)), username, "wrong", echo4)
				if !errors.Is(err, connect.ErrUnauthorized) && !errors.Is(err, socks5.ErrUnauthorized) {
					t.Errorf("error %v", err)
				}
			})
			for _, target := range []string{"127.0.0.1:22", "[::1]:22", "10.0.0.1:80", "169.254.169.254:80", "[fd00:ec2::254]:80", "[::ffff:127.0.0.1]:22", "localhost:22", "0.0.0.0:22"} {
				t.Run(protocol+" from "+host+" to "+target+" is refused by policy", func(t *testing.T) {
					_, err := open(t.Context(), dial(t, address(config, host)), username, password, target)
					if err == nil || proxyproto.FailureOf(err) != proxyproto.FailurePolicy {
						t.Errorf("error %v", err)
					}
				})
			}
		}
	}
	t.Run("plain HTTP", func(t *testing.T) {
		transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address(config, "127.0.0.1"), User: url.UserPassword(username, password)})}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || string(body) != "proxy headers: " {
			t.Errorf("%s %q", answer.Status, body)
		}
	})
	t.Run("no credentials", func(t *testing.T) {
		conn := dial(t, address(config, "127.0.0.1"))
		_, _ = io.WriteString(conn, "CONNECT "+echo4+" HTTP/1.1\r\nHost: h\r\n\r\n")
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != http.StatusProxyAuthRequired {
			t.Errorf("%v, %v", answer, err)
		}
	})
	agent.stop(t)
	checkLog(t, agent.log(), password, "wrong")
}

func TestAllowedNetworkIsReached(t *testing.T) {
	config := testConfig(t)
	config.Destinations.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	startProcess(t, path, config)
	_, port, _ := net.SplitHostPort(startEcho(t, "127.0.0.1:0"))
	tunnel, err := connect.Handshake(t.Context(), dial(t, address(config, "127.0.0.1")), username, password, "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, tunnel, "by name, resolved at the agent")
}

func TestRotationOverlapsAndOutlivesRestarts(t *testing.T) {
	config := testConfig(t)
	echo := startEcho(t, "127.0.0.1:0")
	config.Destinations.Reflectors = []string{echo}
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	lets := func(t *testing.T, password string) bool {
		t.Helper()
		answers := map[bool]int{}
		for _, open := range tunnels {
			conn := dial(t, address(config, "127.0.0.1"))
			_, err := open(t.Context(), conn, username, password, echo)
			answers[err == nil]++
			_ = conn.Close()
		}
		if len(answers) != 1 {
			t.Error("HTTP and SOCKS5 differ")
		}
		return answers[true] > 0
	}
	agent := startProcess(t, path, config)
	open, err := connect.Handshake(t.Context(), dial(t, address(config, "127.0.0.1")), username, password, echo)
	if err != nil {
		t.Fatal(err)
	}
	client := &agentapi.Client{Address: address(config, "::1"), Key: config.ControlKey}
	until := time.Now().Add(time.Hour)
	next := agentapi.Credential{Username: username, Password: "new-secret"}
	status, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: password, NotAfter: &until}, next})
	if err != nil {
		t.Fatal(err)
	}
	if status.Connections < 1 || status.Version == "" {
		t.Errorf("status %+v", status)
	}
	if !lets(t, password) || !lets(t, "new-secret") || lets(t, "other") {
		t.Error("in the overlap exactly old and new must be let in")
	}
	echoes(t, open, "an open tunnel does not notice")
	if _, err := client.PutCredentials(t.Context(), []agentapi.Credential{next}); err != nil {
		t.Fatal(err)
	}
	if lets(t, password) || !lets(t, "new-secret") {
		t.Error("after the overlap exactly new must be let in")
	}
	other := &agentapi.Client{Address: client.Address, Key: agentapi.NewKey()}
	if _, err := other.PutCredentials(t.Context(), []agentapi.Credential{{Username: "x", Password: "y"}}); !errors.Is(err, agentapi.ErrWrongKey) {
		t.Errorf("another instance's key: %v", err)
	}
	open.Close()
	agent.stop(t)
	checkLog(t, agent.log(), password, "new-secret")

	writeConfig(t, path, config) // as the old seed does at a reboot
	agent = startProcess(t, path, config)
	if lets(t, password) || !lets(t, "new-secret") {
		t.Error("the old seed undid the change")
	}
	agent.stop(t)

	config.Credentials = []agentapi.Credential{{Username: username, Password: "newest-secret"}}
	writeConfig(t, path, config) // as a new seed does
	startProcess(t, path, config)
	if lets(t, "new-secret") || !lets(t, "newest-secret") {
		t.Error("a new seed is not in force")
	}
}

func TestGracefulStop(t *testing.T) {
	config := testConfig(t)
	echo := startEcho(t, "127.0.0.1:0")
	config.Destinations.Reflectors = []string{echo}
	path := filepath.Join(t.TempDir(), "agent.json")
	open := func(t *testing.T) (*process, []net.Conn) {
		t.Helper()
		writeConfig(t, path, config)
		agent := startProcess(t, path, config)
		var conns []net.Conn
		for _, open := range tunnels {
			tunnel, err := open(t.Context(), dial(t, address(config, "127.0.0.1")), username, password, echo)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, tunnel)
		}
		_ = agent.command.Process.Signal(os.Interrupt)
		eventually(t, "new connections are refused", func() bool {
			conn, err := net.Dial("tcp", address(config, "127.0.0.1"))
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		return agent, conns
	}
	t.Run("tunnels go on and their end is the agent's end", func(t *testing.T) {
		agent, conns := open(t)
		for _, conn := range conns {
			echoes(t, conn, "while draining")
			conn.Close()
		}
		agent.waitEnd(t)
	})
	t.Run("the drain time bounds it", func(t *testing.T) {
		config.Limits.DrainSeconds = 1
		agent, conns := open(t)
		agent.waitEnd(t)
		for _, conn := range conns {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a tunnel outlived the agent")
			}
		}
	})
}

func TestIdleTunnelsOfTheProcessHaveTwoDescriptors(t *testing.T) {
	const count = 200
	config := testConfig(t)
	echo := startEcho(t, "127.0.0.1:0")
	config.Destinations.Reflectors = []string{echo}
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	agent := startProcess(t, path, config)
	proc := filepath.Join("/proc", strconv.Itoa(agent.command.Process.Pid))
	descriptors := func() (sockets, pipes int) {
		entries, err := os.ReadDir(filepath.Join(proc, "fd"))
		if err != nil {
			t.Skipf("no /proc here: %v", err)
		}
		for _, entry := range entries {
			switch link, _ := os.Readlink(filepath.Join(proc, "fd", entry.Name())); {
			case strings.HasPrefix(link, "socket:"):
				sockets++
			case strings.HasPrefix(link, "pipe:"):
				pipes++
			}
		}
		return sockets, pipes
	}
	eventually(t, "the first connection has ended", func() bool { sockets, _ := descriptors(); return sockets == 1 })
	_, pipesBefore := descriptors()
	for range count / 2 {
		for _, open := range tunnels {
			tunnel, err := open(t.Context(), dial(t, address(config, "127.0.0.1")), username, password, echo)
			if err != nil {
				t.Fatal(err)
			}
			echoes(t, tunnel, "both ways")
		}
	}
	sockets, pipes := descriptors()
	t.Logf("%d idle tunnels: %d sockets, %d pipe ends pooled", count, sockets-1, pipes-pipesBefore)
	if sockets-1 != 2*count {
		t.Errorf("%d sockets for %d tunnels", sockets-1, count)
	}
	// The pool's, whatever the number of tunnels.
	if pipes-pipesBefore > 16 {
		t.Errorf("%d pipe ends are held by idle tunnels", pipes-pipesBefore)
	}
}
