// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// standIn is the one address of this machine that counts as a public one here.
const standIn = "127.0.0.2"

// untrustedOpener is what a Proxy's own image is fetched with, where the hosts are allowed by name.
func untrustedOpener(hosts ...string) *image.Opener {
	p := &Provider{entry: config.Entry{Name: "home", AllowURLImages: hosts, Mirrors: []config.Mirror{{Host: standIn, BearerTokenFile: "/token"}}}}
	o := p.opener(imageSpec{untrusted: true})
	policy := o.DialControl
	o.DialControl = func(ctx context.Context, network, address string, conn syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().String() == standIn {
			return nil
		}
		return policy(ctx, network, address, conn)
	}
	return o
}

func serveAt(t *testing.T, address string, handler http.HandlerFunc) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close() // for the one of our own
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

func open(t *testing.T, o *image.Opener, url string) error {
	t.Helper()
	body, _, err := o.Open(t.Context(), image.Source{URL: url, SHA256: strings.Repeat("0", 64)})
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Error(err)
	}
	return body.Close()
}

func TestImagesThatAProxyBrings(t *testing.T) {
	refused := func(t *testing.T, err error, says string) {
		t.Helper()
		if err == nil || image.KindOf(err) != image.Permanent || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want a Permanent error that says %q", err, says)
		}
	}
	t.Run("M12: off by default", func(t *testing.T) {
		if len(untrustedOpener().Mirrors) != 0 {
			t.Error("the credentials of the entry's mirrors are lent to a Proxy's own image")
		}
		brought := provider.Image{URL: "https://images.example.org/x", SHA256: strings.Repeat("0", 64)}
		if _, err := resolveImage(config.Entry{Name: "home"}, brought); err == nil || err.Kind != provider.Permanent || !strings.Contains(err.Error(), "takes no images by URL") {
			t.Errorf("got %v", err)
		}
		refused(t, open(t, untrustedOpener(), "http://"+standIn+":1/x"), "not one of allowURLImages")
	})
	t.Run("M12: a redirect to 169.254.169.254 is refused, by name and by address", func(t *testing.T) {
		port := serveAt(t, standIn+":0", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		})
		url := "http://" + net.JoinHostPort(standIn, port)
		refused(t, open(t, untrustedOpener(standIn), url), `the host "169.254.169.254" is not one of allowURLImages`)
		refused(t, open(t, untrustedOpener(standIn, "169.254.169.254"), url), "at 169.254.169.254:80")
	})
	t.Run("M12: a name that changes its mind between two requests", func(t *testing.T) {
		var inside atomic.Bool
		moved := serveAt(t, standIn+":0", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://images.example.org:"+r.URL.Query().Get("port")+"/", http.StatusFound)
		})
		secrets := serveAt(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) { inside.Store(true) })
		names := answer(t, standIn, "127.0.0.1")
		refused(t, open(t, untrustedOpener("images.example.org"), fmt.Sprintf("http://images.example.org:%s/?port=%s", moved, secrets)), "at 127.0.0.1:"+secrets)
		if inside.Load() || names.Load() != 2 {
			t.Errorf("the loopback server was asked: %v; the name was looked up %d times", inside.Load(), names.Load())
		}
	})
	t.Run("M12: no proxy of the environment", func(t *testing.T) {
		const child = "EGRESS_TEST_CHILD" // a process reads its environment's proxy once
		if os.Getenv(child) != "" {
			refused(t, open(t, untrustedOpener("10.0.0.1"), "http://10.0.0.1/x"), "at 10.0.0.1:80")
			return
		}
		var asked atomic.Bool
		proxy := "http://" + standIn + ":" + serveAt(t, standIn+":0", func(http.ResponseWriter, *http.Request) { asked.Store(true) })
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestImagesThatAProxyBrings$/^M12:_no_proxy")
		cmd.Env = append(os.Environ(), child+"=1", "http_proxy="+proxy, "HTTP_PROXY="+proxy, "no_proxy=", "NO_PROXY=")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestImagesThatAProxyBrings/M12") {
			t.Errorf("%v\n%s", err, out)
		}
		if asked.Load() {
			t.Error("the proxy was asked")
		}
	})
}

// answer makes the process's resolver give one address after the other for any name, the last one for ever.
func answer(t *testing.T, addresses ...string) *atomic.Int32 {
	t.Helper()
	var asked atomic.Int32
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				at := min(int(asked.Add(1)), len(addresses)) - 1
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addresses[at]).As4()},
				}}
			}
			if reply, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(reply, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = server.Close()
		<-done
	})
	return &asked
}
