// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
)

func TestEachProxyIsSeenFromItsOwnAddress(t *testing.T) {
	network, addresses := block()
	p, port, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n")}), freePort(t), newReflector(t)
	for _, a := range addresses[:3] {
		i := create(t, p, a, port)
		if i.Host != a || endpoint(t, i) != fmt.Sprintf("%s:%d", a, port) || !strings.HasPrefix(i.ProviderID, "hosts/"+a+"/listeners/egress-testcluster-") {
			t.Errorf("made %+v", i)
		}
		if got := seenAs(t, endpoint(t, i), r.target()); got != a {
			t.Errorf("%s is seen as %q", a, got)
		}
		_, reflectorPort, _ := net.SplitHostPort(r.target())
		if got := seenAs(t, endpoint(t, i), "localhost:"+reflectorPort); got != a {
			t.Errorf("%s is seen as %q by a name", a, got)
		}
	}
}

func TestLoopbackExitsReachLoopbackOnly(t *testing.T) {
	network, addresses := block()
	p := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), Reflectors: []string{"203.0.113.9:80"}})
	proxy := endpoint(t, create(t, p, addresses[0], freePort(t)))
	for _, target := range []string{"1.1.1.1:80", "10.0.0.1:80", "169.254.169.254:80", "0.0.0.0:80", "203.0.113.9:80", "[2606::1]:80", "no-such-name.invalid:80"} {
		if strings.HasPrefix(target, "[") {
			wantAnswer(t, proxy, target, http.StatusBadGateway, proxyproto.FailureLoopbackOnly)
			continue
		}
		t.Run(target, func(t *testing.T) {
			wantAnswer(t, proxy, target, http.StatusBadGateway, proxyproto.FailureLoopbackOnly)
			conn, err := net.Dial("tcp", proxy)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var refused *socks5.ReplyError
			if err := socks5.Handshake(t.Context(), conn, username, password, target); !errors.As(err, &refused) || refused.Code != 3 {
				t.Errorf("SOCKS5: %v", err)
			}
		})
	}
	wantAnswer(t, proxy, "[::1]:80", http.StatusBadGateway, proxyproto.FailureNetworkUnreachable)
}

func TestOneProxyToAnExit(t *testing.T) {
	network, addresses := block()
	p, port := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n")}), freePort(t)
	all := told(t, p)
	made := create(t, p, addresses[0], port)
	_, err := p.Create(t.Context(), specOf(addresses[0], uuid.NewString(), port+1))
	var e *provider.Error
	if !errors.As(err, &e) || e.Kind != provider.Capacity || !strings.Contains(e.Message, made.Namespace+"/"+made.Name) || e.Next == "" {
		t.Errorf("a second Proxy: %v", err)
	}
	states := map[string]provider.HostState{}
	for _, h := range p.Hosts() {
		states[h.Name] = h
	}
	if h := states[addresses[0]]; h.Instances != 1 || h.MaxInstances != 1 || !h.Ready {
		t.Errorf("%+v", h)
	}
	if h := states[addresses[1]]; h.Instances != 0 || h.MaxInstances != 1 || !h.Ready {
		t.Errorf("%+v", h)
	}
	taken(all)
	if err := p.Delete(t.Context(), made.InstanceRef); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{""}, taken(all)); diff != "" {
		t.Errorf("who waits for an exit was not told (-want +got):\n%s", diff)
	}
	create(t, p, addresses[0], port)
}

func TestPortTaken(t *testing.T) {
	network, addresses := block()
	p := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n")})
	all := told(t, p)
	other, err := net.Listen("tcp", addresses[0]+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	spec := specOf(addresses[0], uuid.NewString(), other.Addr().(*net.TCPAddr).Port)
	_, err = p.Create(t.Context(), spec)
	if provider.KindOf(err) != provider.Conflict || !strings.Contains(err.Error(), other.Addr().String()) || !strings.Contains(err.Error(), "spec.port") {
		t.Errorf("error %v", err)
	}
	if _, err := p.Get(t.Context(), spec.InstanceRef); !provider.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	p.lookAtAll()
	if got := taken(all); len(got) > 0 {
		t.Errorf("told %q while the port is taken", got)
	}
	_ = other.Close()
	p.lookAtAll()
	if diff := cmp.Diff([]string{spec.UID}, taken(all)); diff != "" {
		t.Errorf("when the port was free (-want +got):\n%s", diff)
	}
	if i, err := p.Create(t.Context(), spec); err != nil || i.State != provider.StateRunning {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestWhyAnAddressCannotBeListenedOn(t *testing.T) {
	p := &Provider{cluster: cluster}
	s := &slot{exit: &exit{}, instance: &instance{uid: uuid.NewString()}}
	address := netip.MustParseAddrPort("127.0.0.12:80")
	for _, c := range []struct {
		err  error
		kind provider.Kind
		want string
	}{
		{syscall.EADDRINUSE, provider.Conflict, "another program listens at 127.0.0.12:80; end that program, or change spec.port"},
		{syscall.EACCES, provider.Permanent, "set spec.port to 1024 or more, or give the operator the capability"},
		{syscall.EADDRNOTAVAIL, provider.Transient, "address 127.0.0.12 cannot be used on this machine"},
		{syscall.EMFILE, provider.Transient, "listening at 127.0.0.12:80: too many open files"},
	} {
		err := p.unlistened(s, address, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", c.err)})
		if err.Kind != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v %q", c.err, err.Kind, err)
		}
	}
}

func TestDeleteAndCloseEndTunnels(t *testing.T) {
	network, addresses := block()
	p, port, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n")}), freePort(t), newReflector(t)
	first, second := create(t, p, addresses[0], port), create(t, p, addresses[1], port)
	open := func(i provider.Instance) net.Conn {
		conn, err := tunnel(t, endpoint(t, i), r.target())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	deleted, closed := open(first), open(second)
	if err := p.Delete(t.Context(), first.InstanceRef); err != nil {
		t.Fatal(err)
	}
	if !ends(deleted) {
		t.Error("a tunnel outlives its instance")
	}
	if _, err := net.Dial("tcp", endpoint(t, first)); err == nil {
		t.Error("the port is still open after delete")
	}
	if got := seenAs(t, endpoint(t, second), r.target()); got != addresses[1] {
		t.Errorf("the other one is seen as %q", got)
	}
	p.Close()
	if !ends(closed) {
		t.Error("a tunnel outlives its provider")
	}
}

func TestCredentialsChangeOverTheControlChannel(t *testing.T) {
	network, addresses := block()
	m := &fakeMachine{}
	p, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), machine: m}), newReflector(t)
	i := create(t, p, addresses[0], freePort(t))
	client := agentapi.Client{Address: endpoint(t, i), Key: testKey}
	status, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: "new"}})
	if err != nil || status.Version != "test" || i.AgentVersion != "test" {
		t.Fatalf("%+v, %v", status, err)
	}
	lets := func(password string) bool {
		conn, err := net.Dial("tcp", endpoint(t, i))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return socks5.Handshake(t.Context(), conn, username, password, r.target()) == nil
	}
	if lets(password) || !lets("new") {
		t.Error("exactly the new password must be let in")
	}
	// Another listener for the same instance, as after a change of address.
	p.mu.Lock()
	s := p.slots[0]
	ended := s.instance.ended
	s.instance.shut()
	p.mu.Unlock()
	<-ended
	p.lookAtAll()
	if got := get(t, p, i.InstanceRef); got.State != provider.StateRunning || !got.Created.Equal(i.Created) {
		t.Errorf("%+v", got)
	}
	if lets(password) || !lets("new") {
		t.Error("the new listener has other credentials")
	}
}

func TestPlainHTTP(t *testing.T) {
	network, addresses := block()
	p, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n")}), newReflector(t)
	proxy := endpoint(t, create(t, p, addresses[5], freePort(t)))
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\nConnection: close\r\n\r\n", r.target(), r.target())
	if body, _ := io.ReadAll(conn); !strings.HasSuffix(string(body), addresses[5]) {
		t.Errorf("answer %q", body)
	}
}
