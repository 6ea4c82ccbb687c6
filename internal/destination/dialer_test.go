// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is a net of addresses that answer in their own way.
type fakeNet struct {
	names map[string][]string
	// answers are per address; one without blackholes.
	answers map[string]answer

	mu      sync.Mutex
	dialled []string
	lookups int
	closed  int
}

type answer struct {
	after time.Duration
	err   error
	// late answers even after the dial was cancelled.
	late bool
}

type fakeConn struct {
	net.Conn
	addr string
	net  *fakeNet
}

func (c *fakeConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.closed++
	return nil
}

func (n *fakeNet) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	n.lookups++
	n.mu.Unlock()
	list, ok := n.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	addrs := make([]netip.Addr, len(list))
	for i, a := range list {
		addrs[i] = netip.MustParseAddr(a)
	}
	return addrs, nil
}

func (n *fakeNet) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, addr.String())
	a, ok := n.answers[addr.Addr().String()]
	n.mu.Unlock()
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.late {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(a.after):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	return &fakeConn{addr: addr.String(), net: n}, nil
}

func (n *fakeNet) dialer(t *testing.T, rules Rules) *Dialer {
	return &Dialer{
		Policy: mustPolicy(t, rules), Resolve: n.resolve, DialAddr: n.dial,
		OwnAddresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("9.9.9.9")}, nil },
	}
}

func TestDial(t *testing.T) {
	refused := errors.New("connection refused")
	for _, c := range []struct {
		name    string
		net     *fakeNet
		rules   Rules
		target  string
		conn    string // where the connection leads
		dialled []string
		failure proxyproto.Failure
		took    time.Duration
	}{
		{
			name: "address", target: "1.1.1.1:80", net: &fakeNet{answers: map[string]answer{"1.1.1.1": {}}},
			conn: "1.1.1.1:80", dialled: []string{"1.1.1.1:80"},
		},
		{name: "private address", target: "10.0.0.1:80", net: &fakeNet{}, failure: proxyproto.FailurePolicy},
		{name: "own address", target: "9.9.9.9:80", net: &fakeNet{}, failure: proxyproto.FailurePolicy},
		{
			name: "name that leads inside", target: "inside:80", net: &fakeNet{names: map[string][]string{"inside": {"127.0.0.1", "::1", "169.254.169.254"}}},
			failure: proxyproto.FailurePolicy,
		},
		{
			name: "name with both: only the allowed address is dialled", target: "mixed:443",
			net:  &fakeNet{names: map[string][]string{"mixed": {"10.0.0.1", "1.1.1.1", "::ffff:127.0.0.1"}}, answers: map[string]answer{"1.1.1.1": {}, "10.0.0.1": {}, "127.0.0.1": {}}},
			conn: "1.1.1.1:443", dialled: []string{"1.1.1.1:443"},
		},
		{name: "unknown name", target: "nowhere:80", net: &fakeNet{}, failure: proxyproto.FailureName},
		{
			name: "a family without a route costs nothing", target: "dual:80",
			net: &fakeNet{
				names:   map[string][]string{"dual": {"2606::1", "2606::2", "1.1.1.1"}},
				answers: map[string]answer{"2606::1": {err: refused}, "1.1.1.1": {after: time.Millisecond}},
			},
			conn: "1.1.1.1:80", dialled: []string{"[2606::1]:80", "1.1.1.1:80"}, took: time.Millisecond,
		},
		{
			name: "a silent address costs one delay", target: "dual:80",
			net: &fakeNet{
				names: map[string][]string{"dual": {"2606::1", "1.1.1.1"}}, answers: map[string]answer{"1.1.1.1": {after: 10 * time.Millisecond}},
			},
			conn: "1.1.1.1:80", dialled: []string{"[2606::1]:80", "1.1.1.1:80"}, took: 260 * time.Millisecond,
		},
		{name: "all silent", target: "1.1.1.1:80", net: &fakeNet{}, dialled: []string{"1.1.1.1:80"}, failure: proxyproto.FailureTimeout, took: 15 * time.Second},
		{
			name: "reflector by address", target: "10.0.0.1:80", rules: Rules{Reflectors: []string{"10.0.0.1:80"}},
			net: &fakeNet{answers: map[string]answer{"10.0.0.1": {}}}, conn: "10.0.0.1:80", dialled: []string{"10.0.0.1:80"},
		},
		{
			name: "reflector by name", target: "Reflector:80", rules: Rules{Reflectors: []string{"reflector:80"}},
			net:  &fakeNet{names: map[string][]string{"Reflector": {"10.0.0.1"}}, answers: map[string]answer{"10.0.0.1": {}}},
			conn: "10.0.0.1:80", dialled: []string{"10.0.0.1:80"},
		},
		{
			name: "reflector on another port", target: "reflector:81", rules: Rules{Reflectors: []string{"reflector:80"}},
			net: &fakeNet{names: map[string][]string{"reflector": {"10.0.0.1"}}}, failure: proxyproto.FailurePolicy,
		},
		{
			name: "no more than eight addresses are tried", target: "many:80",
			net:     &fakeNet{names: map[string][]string{"many": slices.Repeat([]string{"1.1.1.1"}, 50)}, answers: map[string]answer{"1.1.1.1": {err: refused}}},
			dialled: slices.Repeat([]string{"1.1.1.1:80"}, 8), failure: proxyproto.FailureGeneral,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				conn, err := c.net.dialer(t, c.rules).Dial(t.Context(), c.target)
				if took := time.Since(begin); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if c.failure != "" {
					if err == nil || proxyproto.FailureOf(err) != c.failure {
						t.Errorf("error %v, want %s", err, c.failure)
					}
				} else if err != nil || conn.(*fakeConn).addr != c.conn {
					t.Errorf("connection %+v, %v; want %s", conn, err, c.conn)
				}
				if diff := cmp.Diff(c.dialled, c.net.dialled); diff != "" {
					t.Errorf("dialled (-want +got):\n%s", diff)
				}
				if c.net.lookups > 1 {
					t.Errorf("%d lookups: the name could change its mind between check and dial", c.net.lookups)
				}
			})
		})
	}
}

func TestConnectionsThatLoseAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNet{
			names:   map[string][]string{"dual": {"1.1.1.1", "1.1.1.2"}},
			answers: map[string]answer{"1.1.1.1": {after: 400 * time.Millisecond, late: true}, "1.1.1.2": {after: 50 * time.Millisecond}},
		}
		if _, err := n.dialer(t, Rules{}).Dial(t.Context(), "dual:80"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.closed != 1 || len(n.dialled) != 2 {
			t.Errorf("%d of %d are closed, want the loser", n.closed, len(n.dialled))
		}
	})
}

func TestOwnAddressesUnknownFailsClosed(t *testing.T) {
	n := &fakeNet{answers: map[string]answer{"1.1.1.1": {}}}
	dialer := n.dialer(t, Rules{})
	dialer.OwnAddresses = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	if _, err := dialer.Dial(t.Context(), "1.1.1.1:80"); err == nil || len(n.dialled) != 0 {
		t.Errorf("error %v, dialled %v", err, n.dialled)
	}
}

func TestSystemDialer(t *testing.T) {
	for family, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(family, func(t *testing.T) {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			target := listener.Addr().String()
			var refusal *RefusedError
			if _, err := (&Dialer{Policy: mustPolicy(t, Rules{})}).Dial(t.Context(), target); !errors.As(err, &refusal) {
				t.Errorf("without rules: %v", err)
			}
			conn, err := (&Dialer{Policy: mustPolicy(t, Rules{Reflectors: []string{target}})}).DialContext(t.Context(), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
	own, err := InterfaceAddresses()
	if err != nil || !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("own addresses %v, %v", own, err)
	}
}
