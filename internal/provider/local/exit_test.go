// SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// fakeMachine is this machine, but for what a test says. Its fields are guarded by mu.
type fakeMachine struct {
	thisMachine
	mu sync.Mutex
	// gone addresses cannot be bound; claimed ones can, whatever the system thinks.
	gone, claimed []string
	// starved: no call finds out anything.
	starved bool
}

func (m *fakeMachine) set(change func(m *fakeMachine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *fakeMachine) addresses() ([]netip.Addr, error) {
	all, err := m.thisMachine.addresses()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.claimed {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, err
}

func (m *fakeMachine) canBind(a netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.starved:
		return &net.OpError{Op: "listen", Err: syscall.EMFILE}
	case slices.Contains(m.gone, a.String()):
		return &net.OpError{Op: "listen", Err: syscall.EADDRNOTAVAIL}
	case slices.Contains(m.claimed, a.String()):
		return nil
	}
	return m.thisMachine.canBind(a)
}

func TestAnExitThatGoesAwayAndComesBack(t *testing.T) {
	network, addresses := block()
	m := &fakeMachine{}
	p, port, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), machine: m}), freePort(t), newReflector(t)
	all := told(t, p)
	i, other := create(t, p, addresses[0], port), create(t, p, addresses[1], port)
	open, err := tunnel(t, endpoint(t, i), r.target())
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, open, r.target()); got != addresses[0] {
		t.Fatalf("seen as %q", got)
	}
	before := r.seen(addresses[0])

	m.set(func(m *fakeMachine) { m.gone = []string{addresses[0]} })
	p.lookAtAll()
	if diff := cmp.Diff([]string{i.UID}, taken(all)); diff != "" {
		t.Errorf("told when it went (-want +got):\n%s", diff)
	}
	if got := get(t, p, i.InstanceRef); got.State != provider.StatePaused || !strings.Contains(got.StateReason, addresses[0]) || !strings.Contains(got.StateReason, "bring it back") {
		t.Errorf("%+v", got)
	}
	if h := p.Hosts()[0]; h.Ready || h.Reason != provider.HostUnreachable || !strings.Contains(h.Message, addresses[0]) {
		t.Errorf("%+v", h)
	}
	if !ends(open) {
		t.Error("a tunnel outlives its address")
	}
	wantAnswer(t, endpoint(t, i), r.target(), http.StatusBadGateway, proxyproto.FailureExitGone)
	again, err := p.Create(t.Context(), specOf(addresses[0], i.UID, port))
	if err != nil || again.State != provider.StatePaused {
		t.Errorf("create: %+v, %v", again, err)
	}
	if got := seenAs(t, endpoint(t, other), r.target()); got != addresses[1] {
		t.Errorf("the other exit is seen as %q", got)
	}
	if got := r.seen(addresses[0]); got != before {
		t.Errorf("%d connections from an address that is gone", got-before)
	}
	p.lookAtAll()
	if got := taken(all); len(got) > 0 {
		t.Errorf("told %q though nothing changed", got)
	}

	m.set(func(m *fakeMachine) { m.gone = nil })
	p.lookAtAll()
	if diff := cmp.Diff([]string{i.UID}, taken(all)); diff != "" {
		t.Errorf("told when it came back (-want +got):\n%s", diff)
	}
	if got := get(t, p, i.InstanceRef); got.State != provider.StateRunning || !got.Created.Equal(i.Created) {
		t.Errorf("%+v", got)
	}
	if got := seenAs(t, endpoint(t, i), r.target()); got != addresses[0] {
		t.Errorf("seen as %q", got)
	}
}

func TestAProxyMadeWhileItsExitIsAwayServesWhenItComes(t *testing.T) {
	network, addresses := block()
	m := &fakeMachine{gone: []string{addresses[0]}}
	p, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), machine: m}), newReflector(t)
	all := told(t, p)
	i := create(t, p, addresses[0], freePort(t))
	if i.State != provider.StatePaused {
		t.Errorf("%+v", i)
	}
	m.set(func(m *fakeMachine) { m.gone = nil })
	p.lookAtAll()
	if diff := cmp.Diff([]string{i.UID}, taken(all)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if got := seenAs(t, endpoint(t, i), r.target()); got != addresses[0] {
		t.Errorf("seen as %q", got)
	}
}

func TestWhatCannotBeReadIsNotGone(t *testing.T) {
	network, addresses := block()
	m := &fakeMachine{}
	p, r := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), machine: m}), newReflector(t)
	i := create(t, p, addresses[0], freePort(t))
	open, err := tunnel(t, endpoint(t, i), r.target())
	if err != nil {
		t.Fatal(err)
	}
	m.set(func(m *fakeMachine) { m.starved = true })
	p.lookAtAll()
	if got := get(t, p, i.InstanceRef); got.State != provider.StateRunning {
		t.Errorf("%+v", got)
	}
	if got := ask(t, open, r.target()); got != addresses[0] {
		t.Errorf("seen as %q", got)
	}
	starving := start(t, Options{Entry: entryOf(t, "  addresses: ["+network+"]\n"), machine: m})
	if h := starving.Hosts()[0]; h.Ready || h.Reason != provider.HostDegraded || !strings.Contains(h.Message, "too many open files") {
		t.Errorf("an exit that was never seen: %+v", h)
	}
}

// The exit is believed to be there, and the system refuses to send from it: the request fails, and nothing leaves by another address.
func TestNothingLeavesByAnotherAddress(t *testing.T) {
	const address = "198.51.100.77"
	m := &fakeMachine{claimed: []string{address}}
	r := newReflector(t)
	for name, reflectors := range map[string][]string{"to a reflector": {r.target()}, "to a name": {"localhost:" + strings.Split(r.target(), ":")[1]}} {
		t.Run(name, func(t *testing.T) {
			p := start(t, Options{Entry: entryOf(t, "  addresses: ["+address+"]\n"), Reflectors: reflectors, machine: m})
			i := create(t, p, address, freePort(t))
			if i.State != provider.StateRunning || i.Addresses[0].String() != "127.51.100.77" {
				t.Errorf("%+v", i)
			}
			wantAnswer(t, endpoint(t, i), reflectors[0], http.StatusBadGateway, proxyproto.FailureExitGone)
			wantAnswer(t, endpoint(t, i), "127.0.0.1:1", http.StatusForbidden, proxyproto.FailurePolicy)
			conn, err := net.Dial("tcp", endpoint(t, i))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\nConnection: close\r\n\r\n", reflectors[0])
			if body, _ := io.ReadAll(conn); !strings.HasPrefix(string(body), "HTTP/1.1 502 ") {
				t.Errorf("plain HTTP: %q", body)
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.from) > 0 {
		t.Errorf("connections came from %v", r.from)
	}
}

// stillMachine says what a table says.
type stillMachine struct {
	own      []netip.Addr
	ownErr   error
	link     *net.Interface
	v4, v6   netip.Addr
	e4, e6   error
	bindable error
}

func (m stillMachine) addresses() ([]netip.Addr, error) { return m.own, m.ownErr }
func (m stillMachine) networkInterface(string) (*net.Interface, []netip.Addr, error) {
	return m.link, m.own, m.ownErr
}
func (m stillMachine) source(target netip.Addr, _ string) (netip.Addr, error) {
	if target.Is4() {
		return m.v4, m.e4
	}
	return m.v6, m.e6
}
func (m stillMachine) canBind(netip.Addr) error { return m.bindable }

func TestPresence(t *testing.T) {
	a4, a6, other := netip.MustParseAddr("192.168.7.2"), netip.MustParseAddr("2a00::7"), netip.MustParseAddr("192.168.9.9")
	up, down := &net.Interface{Flags: net.FlagUp}, &net.Interface{}
	outgoing, address, link := config.Exit{Outgoing: true}, config.Exit{Address: a4}, config.Exit{Interface: "wwan0"}
	no := func(e syscall.Errno) error { return &net.OpError{Op: "dial", Err: e} }
	for _, c := range []struct {
		name   string
		exit   config.Exit
		m      stillMachine
		want   presence
		reason string
		says   string
		failed bool
	}{
		{name: "outgoing, both families", exit: outgoing, m: stillMachine{v4: a4, v6: a6}, want: present(a4, a6)},
		{name: "outgoing, IPv4", exit: outgoing, m: stillMachine{v4: a4, e6: no(syscall.ENETUNREACH)}, want: present(a4)},
		{name: "outgoing, IPv6", exit: outgoing, m: stillMachine{e4: no(syscall.ENETUNREACH), v6: a6}, want: present(a6)},
		{name: "outgoing, no route", exit: outgoing, m: stillMachine{e4: no(syscall.ENETUNREACH), e6: no(syscall.ENETUNREACH)}, reason: provider.HostUnreachable, says: "no default route"},
		{name: "outgoing, only loopback", exit: outgoing, m: stillMachine{v4: netip.MustParseAddr("127.0.0.1"), e6: no(syscall.ENETUNREACH)}, reason: provider.HostUnreachable, says: "no address"},
		{name: "outgoing, out of descriptors", exit: outgoing, m: stillMachine{v4: a4, e6: no(syscall.EMFILE)}, failed: true},
		{name: "address", exit: address, m: stillMachine{own: []netip.Addr{other, a4}}, want: present(a4)},
		{name: "address, on no interface", exit: address, m: stillMachine{own: []netip.Addr{other}}, reason: provider.HostUnreachable, says: "192.168.7.2 is on no interface"},
		{name: "address, not usable yet", exit: address, m: stillMachine{own: []netip.Addr{a4}, bindable: no(syscall.EADDRNOTAVAIL)}, reason: provider.HostUnreachable, says: "cannot be used"},
		{name: "address, out of descriptors", exit: address, m: stillMachine{own: []netip.Addr{a4}, bindable: no(syscall.ENFILE)}, failed: true},
		{name: "addresses that cannot be read", exit: address, m: stillMachine{ownErr: errors.New("netlink")}, failed: true},
		{name: "interface", exit: link, m: stillMachine{link: up, own: []netip.Addr{a4, a6}, v4: a4, v6: a6}, want: present(a4, a6)},
		{name: "interface that is not there", exit: link, m: stillMachine{}, reason: provider.HostUnreachable, says: "wwan0 is not there"},
		{name: "interface that is down", exit: link, m: stillMachine{link: down, own: []netip.Addr{a4}, v4: a4}, reason: provider.HostUnreachable, says: "wwan0 is down"},
		{name: "interface without an address", exit: link, m: stillMachine{link: up, v4: other, e6: no(syscall.ENETUNREACH)}, reason: provider.HostUnreachable, says: "no address of its own"},
		{name: "interface without a route", exit: link, m: stillMachine{link: up, own: []netip.Addr{a4}, e4: no(syscall.ENETUNREACH), e6: no(syscall.ENETUNREACH)}, reason: provider.HostUnreachable, says: "default route"},
		{name: "interface that goes meanwhile", exit: link, m: stillMachine{link: up, e4: &bindError{"wwan0", syscall.ENODEV}, e6: &bindError{"wwan0", syscall.ENODEV}}, reason: provider.HostUnreachable, says: "leads nowhere"},
		{name: "the system refuses", exit: link, m: stillMachine{link: up, own: []netip.Addr{a4}, e4: &bindError{"wwan0", syscall.EPERM}, e6: &bindError{"wwan0", syscall.EPERM}}, reason: provider.HostIncapable, says: interfaceNeeds},
		{name: "the loopback interface", exit: link, m: stillMachine{link: &net.Interface{Flags: net.FlagUp | net.FlagLoopback}}, reason: provider.HostIncapable, says: "127.0.0.0/8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := look(c.m, c.exit)
			if (err != nil) != c.failed {
				t.Fatalf("error %v", err)
			}
			if got.problem.reason != c.reason || c.reason != "" && (!strings.Contains(got.problem.String(), c.says) || got.problem.next == "") {
				t.Errorf("problem %+v, want %s: %s", got.problem, c.reason, c.says)
			}
			if c.reason == "" && got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
