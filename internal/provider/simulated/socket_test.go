// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestListen(t *testing.T) {
	t.Run("only this user may connect, and the end removes it", func(t *testing.T) {
		path := socketPath(t)
		listener, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		listener.Close()
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	t.Run("a socket that nobody serves is replaced", func(t *testing.T) {
		path := socketPath(t)
		dead, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		dead.(*net.UnixListener).SetUnlinkOnClose(false)
		dead.Close()
		listener, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	})
	t.Run("one that is served stays", func(t *testing.T) {
		path := socketPath(t)
		first, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if second, err := Listen(t.Context(), path); err == nil {
			second.Close()
			t.Error("a second simulator took the socket of the first")
		} else if !strings.Contains(err.Error(), "another simulator serves "+path) {
			t.Errorf("error %v", err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file of another kind stays", func(t *testing.T) {
		path := socketPath(t)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("error %v", err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("what somebody else put there meanwhile stays at the end", func(t *testing.T) {
		path := socketPath(t)
		listener, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		listener.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		if _, err := Listen(t.Context(), "/nonexistent-folder/s"); err == nil || !strings.Contains(err.Error(), "make the folder") {
			t.Errorf("error %v", err)
		}
	})
}

func TestErrorsCrossTheSocketWhole(t *testing.T) {
	for _, kind := range provider.Kinds() {
		e := &provider.Error{Kind: kind, Reason: "Because", Host: "sim-1", Object: "instance x", Message: "it is so", Next: "do that", Progress: 42}
		if diff := cmp.Diff(e, errorToWire(e).err()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", kind, diff)
		}
	}
	if e := (&wireError{Kind: "Newfangled"}).err(); e.Kind != provider.Transient {
		t.Errorf("an unknown kind is %v", e.Kind)
	}
}

func TestClientSeesWhatTheWorldHas(t *testing.T) {
	w := newWorld(t)
	path := socketPath(t)
	serveWorld(t, path, w)
	c := NewClient(path)
	defer c.Close()
	w.booted(t, "flaps-1")
	w.attach(t, Owner{Cluster: "deadbeef", Entry: "sim"}, HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100})
	if _, err := c.Create(t.Context(), Owner{Cluster: "deadbeef", Entry: "sim"}, specOn(w.port, uidA, "theirs")); err != nil {
		t.Fatal(err)
	}
	want, err := w.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Instances(t.Context())
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); err != nil || diff != "" || len(got) != 2 {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	rule := Rule{Fault: config.FaultNoEgress, Hosts: "sim-*", Proxies: "a*"}
	if err := c.SetFault(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	if rules, err := c.Faults(t.Context()); err != nil || cmp.Diff([]Rule{rule}, rules) != "" {
		t.Errorf("%+v, %v", rules, err)
	}
	if n, err := c.ClearFaults(t.Context(), "no-egress"); err != nil || n != 1 {
		t.Errorf("cleared %d, %v", n, err)
	}
	wantError(t, "a fault that is none", c.SetFault(t.Context(), Rule{Fault: "flips"}), provider.Permanent, "")
}

func TestSimulatorThatIsNotThere(t *testing.T) {
	e := entry("sim")
	e.Socket = socketPath(t)
	p := newProvider(t, e)
	defer p.Close()
	_, err := p.Get(t.Context(), refA)
	wantError(t, "get", err, provider.Transient, provider.HostUnreachable)
	if want := "egress-proxies simulator --socket " + e.Socket; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say which command to run", err)
	}
	eventually(t, "the host is shown as unreachable, with the command", func() bool {
		h := p.Hosts()[0]
		return !h.Ready && h.Reason == provider.HostUnreachable && strings.Contains(h.Message, "egress-proxies simulator --socket "+e.Socket)
	})
	// It is found by itself once it is there.
	w := NewWorld(WorldOptions{})
	defer w.Close()
	serveWorld(t, e.Socket, w)
	eventually(t, "the host is ready", func() bool { return p.Hosts()[0].Ready })
}

// The instances live in the simulator: the operator's end is nothing to them, and a simulator's end is seen at once.
func TestSimulatorThatIsStartedAnew(t *testing.T) {
	e := entry("sim")
	e.Socket = socketPath(t)
	first := NewWorld(WorldOptions{})
	defer first.Close()
	stop := serveWorld(t, e.Socket, first)
	p := newProvider(t, e)
	defer p.Close()
	var told atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	watching := make(chan error)
	go func() { watching <- p.Watch(ctx, func(string) { told.Add(1) }) }()
	eventually(t, "the host is ready", func() bool { return p.Hosts()[0].Ready })
	spec := specOn(freePort(t), uidA, "shop-1")
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	before := told.Load()
	stop()
	first.Close()
	eventually(t, "the host is not ready, and whoever watches is told", func() bool { return !p.Hosts()[0].Ready && told.Load() > before })
	second := NewWorld(WorldOptions{})
	defer second.Close()
	serveWorld(t, e.Socket, second)
	_, err := p.Get(t.Context(), refA)
	wantError(t, "a new simulator has nothing", err, provider.NotFound, "")
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Errorf("create: %v", err)
	}
	eventually(t, "the host is ready again", func() bool { return p.Hosts()[0].Ready && p.Hosts()[0].Instances == 1 })
	cancel()
	<-watching
}

func TestCallsThatHangEndAlone(t *testing.T) {
	e := entry("sim")
	e.Socket = socketPath(t)
	w := NewWorld(WorldOptions{})
	defer w.Close()
	serveWorld(t, e.Socket, w)
	p := newProvider(t, e)
	spec := specOn(freePort(t), uidA, "shop-1")
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := w.SetFault(t.Context(), Rule{Fault: config.FaultHostHangs, Proxies: "shop-1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Get(ctx, refA)
	wantError(t, "get", err, provider.Transient, provider.HostTimeout)
	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("the call beside it: %v", err)
	}
	hung := make(chan error)
	go func() { _, err := p.Get(context.Background(), refA); hung <- err }()
	eventually(t, "the call has reached the host", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.hosts["sim-1"].calls >= 4
	})
	p.Close()
	wantError(t, "a call under way at the end", <-hung, provider.Transient, "")
}

func TestUnschedulable(t *testing.T) {
	e := entry("sim")
	e.Hosts[0].Schedulable = new(bool)
	p := newProvider(t, e)
	defer p.Close()
	eventually(t, "the host is ready", func() bool { return p.Hosts()[0].Ready })
	if h := p.Hosts()[0]; !h.Unschedulable || h.MaxInstances != 100 {
		t.Errorf("%+v", h)
	}
}

// A restarted operator may bring another providers file; the simulator must not go on with the old one.
func TestChangedDescriptionReachesTheSimulator(t *testing.T) {
	e := entry("sim")
	e.Socket = socketPath(t)
	w := NewWorld(WorldOptions{})
	defer w.Close()
	serveWorld(t, e.Socket, w)
	before := newProvider(t, e)
	eventually(t, "the host is ready", func() bool { return before.Hosts()[0].Ready })
	before.Close()
	e.Faults = []config.Fault{{Fault: config.FaultHostRefuses}}
	e.Hosts = append(e.Hosts, config.Host{Name: "sim-2", Addresses: newNetwork().String(), Capacity: 7})
	after := newProvider(t, e)
	defer after.Close()
	eventually(t, "the new file holds", func() bool {
		h := after.Hosts()
		return h[0].Reason == provider.HostUnauthorized && h[1].Reason == provider.HostUnauthorized && h[1].MaxInstances == 7
	})
}
