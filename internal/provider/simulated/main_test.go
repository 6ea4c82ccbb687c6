// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cluster  = "c0ffee00"
	username = "px-user"
	password = "px-secret-password"
	uidA     = "0a1b2c3d-0000-4000-8000-00000000000a"
	uidB     = "0a1b2c3d-0000-4000-8000-00000000000b"
)

var (
	controlKey = agentapi.NewKey()
	owner      = Owner{Cluster: cluster, Entry: "sim"}
	refA       = provider.InstanceRef{Host: "sim-1", UID: uidA}
)

// fakeClock is a clock that tests move.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	at      time.Time
	f       func()
	stopped bool
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := &fakeTimer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, timer)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		timer.stopped = true
	}
}

// advance moves the time, and runs in order what comes due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.now.Add(d)
	for {
		c.timers = slices.DeleteFunc(c.timers, func(t *fakeTimer) bool { return t.stopped })
		if len(c.timers) == 0 {
			break
		}
		next := slices.MinFunc(c.timers, func(a, b *fakeTimer) int { return a.at.Compare(b.at) })
		if next.at.After(end) {
			break
		}
		next.stopped, c.now = true, next.at
		c.mu.Unlock()
		next.f()
		c.mu.Lock()
	}
	c.now = end
}

// waiting is how many timers are pending.
func (c *fakeClock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(c.timers), func(t *fakeTimer) bool { return t.stopped }))
}

// networks gives each test loopback addresses of its own.
var networks atomic.Uint32

func newNetwork() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 20, byte(networks.Add(1)), 0}), 24)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.20.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func entry(name string, faults ...string) config.Entry {
	return config.Entry{Name: name, Type: config.TypeSimulated, Hosts: []config.Host{
		{Name: "sim-1", Addresses: newNetwork().String(), Capacity: 100, BootTime: 0, Faults: faults},
	}}
}

func specOn(port int, uid, name string) provider.InstanceSpec {
	return provider.InstanceSpec{
		InstanceRef: provider.InstanceRef{Host: "sim-1", UID: uid}, Namespace: "shop", Name: name,
		Shape:       provider.Shape{VCPUs: 1, MemoryMiB: 512, DiskSizeGiB: 4, Software: provider.SoftwareAgent, Port: port},
		Credentials: provider.Credentials{Username: username, Password: provider.NewSecret(password)},
		ControlKey:  provider.NewSecret(string(controlKey[:])),
	}
}

// world is a World on a fake clock, with one attached owner.
type world struct {
	*World
	clock   *fakeClock
	port    int
	network netip.Prefix
}

func newWorld(t *testing.T, faults ...string) *world {
	t.Helper()
	w := &world{clock: newFakeClock(), port: freePort(t), network: newNetwork()}
	w.World = NewWorld(WorldOptions{Version: "v0.0.0-test", clock: w.clock})
	t.Cleanup(w.Close)
	w.attach(t, owner, HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100, BootTime: 2 * time.Second, Faults: faults})
	return w
}

func (w *world) attach(t *testing.T, o Owner, hosts ...HostDescription) {
	t.Helper()
	if err := w.Attach(t.Context(), o, Description{Hosts: hosts}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(name string) (provider.Instance, error) {
	return w.Create(context.Background(), owner, specOn(w.port, uidA, name))
}

func (w *world) mustCreate(t *testing.T, name string) provider.Instance {
	t.Helper()
	i, err := w.create(name)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return i
}

func (w *world) get(t *testing.T) provider.Instance {
	t.Helper()
	i, err := w.Get(t.Context(), owner, refA)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return i
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "simulator.sock")
}

// serveWorld serves a World on a socket until the end of the test, or until stop.
func serveWorld(t *testing.T, path string, w API) (stop func()) {
	t.Helper()
	listener, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := Serve(ctx, listener, w); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come about: %s", what)
		}
		<-tick.C
	}
}

// wantError checks kind and reason of an error, and that it holds no secret and says what to do.
func wantError(t *testing.T, what string, err error, kind provider.Kind, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %v", what, kind)
		return
	}
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Errorf("%s: %v is no error of a provider", what, err)
		return
	}
	if e.Kind != kind || e.Reason != reason {
		t.Errorf("%s: %v, reason %q (%v); want %v, reason %q", what, e.Kind, e.Reason, err, kind, reason)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, e.Message), password) {
		t.Errorf("%s: the error holds the password", what)
	}
}
