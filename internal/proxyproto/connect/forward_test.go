// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// throughProxy is a client whose every request goes through the proxy.
func throughProxy(t *testing.T, proxy string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		Proxy:              http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: url.UserPassword(username, password)}),
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestForward(t *testing.T) {
	var seen *http.Request
	var body []byte
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Origin", "yes")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "secret of this hop")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "answer")
	}))
	defer origin.Close()
	_, proxy := startServer(t, "127.0.0.1:0", Config{})
	conn := dial(t, proxy)
	reader := bufio.NewReader(conn)
	host := strings.TrimPrefix(origin.URL, "http://")
	// Twice: the client's connection is kept.
	for range 2 {
		answer := ask(t, conn, reader, "POST http://"+host+"/p;a?q=1;2&x=%zz HTTP/1.1\r\nHost: other.example\r\n"+authorization+
			"Connection: X-Mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nX-Forwarded-For: 9.9.9.9\r\n"+
			"Authorization: Basic Zm9yOm9yaWdpbg==\r\nContent-Length: 4\r\n\r\nbody")
		got, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusTeapot || string(got) != "answer" || answer.Header.Get("X-Origin") != "yes" || answer.Header.Get("X-Hop") != "" {
			t.Errorf("answer %v %v %q", answer.Status, answer.Header, got)
		}
		want := http.Header{"Authorization": {"Basic Zm9yOm9yaWdpbg=="}, "X-Forwarded-For": {"9.9.9.9"}, "Content-Length": {"4"}}
		if diff := cmp.Diff(want, seen.Header); diff != "" {
			t.Errorf("headers at the origin (-want +got):\n%s", diff)
		}
		if seen.Host != host || seen.RequestURI != "/p;a?q=1;2&x=%zz" || string(body) != "body" {
			t.Errorf("the origin saw host %q, %q, body %q", seen.Host, seen.RequestURI, body)
		}
	}
}

func TestForwardTellsTheDialerForWhom(t *testing.T) {
	asked := make(chan proxyproto.Request, 1)
	_, proxy := startServer(t, "127.0.0.1:0", Config{Dial: func(_ context.Context, request proxyproto.Request) (net.Conn, error) {
		asked <- request
		return nil, errors.New("enough")
	}})
	for target, want := range map[string]string{
		"http://example.org/": "example.org:80", "http://example.org:8080/": "example.org:8080", "http://[2606::7]/": "[2606::7]:80",
	} {
		answer, err := throughProxy(t, proxy).Get(target)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := <-asked; got.Target != want || got.Username != username || got.Protocol != proxyproto.ProtocolHTTP {
			t.Errorf("%s: dialled for %+v", target, got)
		}
	}
}

func TestForwardStreamsWithoutDelay(t *testing.T) {
	more := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-more
		_, _ = io.WriteString(w, "second")
	}))
	defer origin.Close()
	_, proxy := startServer(t, "127.0.0.1:0", Config{})
	answer, err := throughProxy(t, proxy).Get(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(answer.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%q, %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(answer.Body); err != nil || string(rest) != "second" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestForwardBoundsStalls(t *testing.T) {
	const stall = 150 * time.Millisecond
	release := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			<-release
		case "/stops":
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			<-release
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	defer origin.Close()
	defer close(release)
	_, proxy := startServer(t, "127.0.0.1:0", Config{StallTimeout: stall})
	t.Run("an origin that never answers", func(t *testing.T) {
		answer, err := throughProxy(t, proxy).Get(origin.URL + "/silent")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("answer %v", answer.Status)
		}
	})
	t.Run("an origin that stops: the client can tell that the answer is torn", func(t *testing.T) {
		answer, err := throughProxy(t, proxy).Get(origin.URL + "/stops")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if got, err := io.ReadAll(answer.Body); err == nil || isTimeout(err) {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a client that stops in its body", func(t *testing.T) {
		conn := dial(t, proxy)
		_, _ = io.WriteString(conn, "POST "+origin.URL+"/ HTTP/1.1\r\nHost: h\r\n"+authorization+"Content-Length: 100\r\n\r\nhalf")
		if _, err := io.ReadAll(conn); isTimeout(err) {
			t.Error("the connection is still open")
		}
	})
	t.Run("an origin that takes longer than a stall in pieces is not cut", func(t *testing.T) {
		answer, err := throughProxy(t, proxy).Post(origin.URL, "text/plain", &dripping{pieces: 6, pause: stall / 3})
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("answer %v, %v", answer, err)
		}
	})
}

// dripping is a body that comes in pieces.
type dripping struct {
	pieces int
	pause  time.Duration
}

func (d *dripping) Read(p []byte) (int, error) {
	if d.pieces == 0 {
		return 0, io.EOF
	}
	d.pieces--
	time.Sleep(d.pause)
	p[0] = 'x'
	return 1, nil
}

func TestForwardUpgrade(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "echo "+line)
	}))
	defer origin.Close()
	_, proxy := startServer(t, "127.0.0.1:0", Config{})
	conn := dial(t, proxy)
	reader := bufio.NewReader(conn)
	answer := ask(t, conn, reader, "GET "+origin.URL+"/ HTTP/1.1\r\nHost: h\r\n"+authorization+"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer.Status)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if got, _ := reader.ReadString('\n'); got != "echo hello\n" {
		t.Errorf("got %q", got)
	}
}
