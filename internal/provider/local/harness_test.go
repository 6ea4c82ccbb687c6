// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/connect"
)

const (
	cluster            = "testcluster"
	username, password = "user", "secret"
)

// blocks counts the loopback networks that tests took, each one of its own.
var blocks atomic.Int32

// block is a network of 8 loopback addresses that no other test uses.
func block() (network string, addresses []string) {
	n := blocks.Add(1)
	prefix := netip.MustParsePrefix(fmt.Sprintf("127.93.%d.%d/29", n/32, n%32*8))
	for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
		addresses = append(addresses, a.String())
	}
	return prefix.String(), addresses
}

// entryOf is an entry as a loaded file has it.
func entryOf(t *testing.T, keys string) config.Entry {
	t.Helper()
	file, err := config.Parse([]byte("version: 1\nreflectors:\n- url: http://127.0.0.1:9\nentries:\n- name: here\n  type: local\n"+keys), "providers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return file.Entries[0]
}

// never is an interval at which tests look themselves.
const never = time.Hour

func start(t *testing.T, o Options) *Provider {
	t.Helper()
	o.Cluster, o.Version = cluster, "test"
	if o.Interval == 0 {
		o.Interval = never
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// freePort is a port that nothing listens on.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// testKey is every instance's control key.
var testKey = agentapi.NewKey()

func specOf(host, uid string, port int) provider.InstanceSpec {
	return provider.InstanceSpec{
		InstanceRef: provider.InstanceRef{Host: host, UID: uid}, Namespace: "default", Name: "proxy-" + host,
		Shape:       provider.Shape{Software: provider.SoftwareAgent, Port: port},
		Credentials: provider.Credentials{Username: username, Password: provider.NewSecret(password)},
		ControlKey:  provider.NewSecret(string(testKey[:])),
	}
}

func create(t *testing.T, p *Provider, host string, port int) provider.Instance {
	t.Helper()
	i, err := p.Create(t.Context(), specOf(host, uuid.NewString(), port))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func get(t *testing.T, p *Provider, ref provider.InstanceRef) provider.Instance {
	t.Helper()
	i, err := p.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func endpoint(t *testing.T, i provider.Instance) string {
	t.Helper()
	if len(i.Addresses) == 0 {
		t.Fatalf("no address: %+v", i)
	}
	return netip.AddrPortFrom(i.Addresses[0], uint16(i.Shape.Port)).String()
}

// reflector answers with the address that a request came from, and counts the connections of each.
type reflector struct {
	*httptest.Server
	mu   sync.Mutex
	from map[string]int
}

func newReflector(t *testing.T) *reflector {
	t.Helper()
	r := &reflector{from: map[string]int{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, hostOf(q.RemoteAddr))
	}))
	r.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.from[hostOf(c.RemoteAddr().String())]++
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *reflector) target() string { return r.Listener.Addr().String() }

func (r *reflector) seen(address string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from[address]
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// tunnel opens a tunnel through a proxy.
func tunnel(t *testing.T, proxy, target string) (net.Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return connect.Handshake(t.Context(), conn, username, password, target)
}

// seenAs asks a reflector through a proxy, over a tunnel.
func seenAs(t *testing.T, proxy, target string) string {
	t.Helper()
	conn, err := tunnel(t, proxy, target)
	if err != nil {
		t.Errorf("through %s to %s: %v", proxy, target, err)
		return ""
	}
	return ask(t, conn, target)
}

func ask(t *testing.T, conn net.Conn, target string) string {
	t.Helper()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return ""
	}
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// answer is the status and the sentence that a client gets who asks for a tunnel.
func answer(t *testing.T, proxy, target string) (status int, reason, sentence string) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	request, _ := http.NewRequest(http.MethodConnect, "http://"+target, nil)
	request.SetBasicAuth(username, password)
	_, _ = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-%s: %s\r\n\r\n", target, target, "Authorization", request.Header.Get("Authorization"))
	got, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.StatusCode == http.StatusOK {
		return got.StatusCode, "", ""
	}
	body, _ := io.ReadAll(got.Body)
	return got.StatusCode, got.Header.Get(proxyproto.HeaderError), strings.TrimSpace(string(body))
}

func wantAnswer(t *testing.T, proxy, target string, status int, failure proxyproto.Failure) {
	t.Helper()
	if got, reason, sentence := answer(t, proxy, target); got != status || reason != string(failure) || sentence != failure.Sentence() {
		t.Errorf("%s: %d %s %q, want %d %s", target, got, reason, sentence, status, failure)
	}
}

// ends says whether a connection ends soon.
func ends(conn net.Conn) bool {
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// told collects what watchers are told.
func told(t *testing.T, p *Provider) <-chan string {
	t.Helper()
	all := make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { _ = p.Watch(ctx, func(uid string) { all <- uid }) })
	t.Cleanup(func() { cancel(); watching.Wait() })
	for range 10_000 {
		if p.watch.Len() > 0 {
			return all
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the watcher does not start")
	return nil
}

// taken empties a channel that is filled already.
func taken(all <-chan string) (got []string) {
	for {
		select {
		case one := <-all:
			got = append(got, one)
		default:
			return got
		}
	}
}
