// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/reflector"
)

// booted makes an instance and waits until it has booted, which it has to.
func (w *world) booted(t *testing.T, name string) provider.Instance {
	t.Helper()
	if i := w.mustCreate(t, name); i.State != provider.StateRunning || len(i.Addresses) > 0 {
		t.Fatalf("right after create: %+v", i)
	}
	w.clock.advance(2 * time.Second)
	i := w.get(t)
	if i.State != provider.StateRunning || len(i.Addresses) != 1 || !w.network.Contains(i.Addresses[0]) {
		t.Fatalf("after its boot: %+v", i)
	}
	return i
}

func (w *world) endpoint(i provider.Instance) string {
	return net.JoinHostPort(i.Addresses[0].String(), strconv.Itoa(w.port))
}

// probed is the verdict of one probe through an instance.
func (w *world) probed(t *testing.T, i provider.Instance, total time.Duration) probe.Verdict {
	t.Helper()
	origin := httptest.NewServer(reflector.Handler(slog.New(slog.DiscardHandler)))
	defer origin.Close()
	return new(probe.Prober).Probe(t.Context(), probe.Target{
		Protocol: probe.HTTP, Address: w.endpoint(i), Username: username, Password: provider.NewSecret(password), Reflectors: []string{origin.URL},
	}, probe.Limits{Total: total, Dial: time.Second})
}

func (w *world) wantProbe(t *testing.T, i provider.Instance, reason probe.Reason) probe.Verdict {
	t.Helper()
	v := w.probed(t, i, 5*time.Second)
	if v.Reason != reason {
		t.Errorf("the probe says %s (%s), want %s", v.Reason, v.Message, reason)
	}
	return v
}

func (w *world) wantState(t *testing.T, state provider.State) provider.Instance {
	t.Helper()
	i := w.get(t)
	if i.State != state || i.StateReason == "" {
		t.Errorf("state %q (%q), want %q", i.State, i.StateReason, state)
	}
	return i
}

func (w *world) wantHost(t *testing.T, reason string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	states := w.hostStates(owner)
	if len(states) != 1 || states[0].Reason != reason || states[0].Ready != (reason == provider.HostReady) || states[0].Ready != (states[0].Message == "") {
		t.Errorf("hosts are %+v, want %s", states, reason)
	}
}

func TestNoFault(t *testing.T) {
	w := newWorld(t)
	i := w.booted(t, "shop-1")
	if v := w.wantProbe(t, i, probe.Succeeded); v.Exit != i.Addresses[0] {
		t.Errorf("exit %v, want its own %v", v.Exit, i.Addresses[0])
	}
	w.clock.advance(24 * time.Hour)
	w.wantState(t, provider.StateRunning)
	w.wantHost(t, provider.HostReady)
}

// faultCases say of each fault what becomes of an instance, or of calls.
var faultCases = map[string]func(*testing.T, *world){
	config.FaultHostDown: func(t *testing.T, w *world) {
		w.callsFail(t, provider.Transient, provider.HostUnreachable)
		w.wantHost(t, provider.HostUnreachable)
		w.ofItsInstances(t, probe.PortClosed)
	},
	config.FaultHostUnreachable: func(t *testing.T, w *world) {
		w.callsFail(t, provider.Transient, provider.HostUnreachable)
		w.wantHost(t, provider.HostUnreachable)
		w.ofItsInstances(t, probe.Succeeded)
	},
	config.FaultHostHangs: func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		hangs := make(chan error)
		go func() { _, err := w.Get(ctx, owner, refA); hangs <- err }()
		cancel()
		wantError(t, "get", <-hangs, provider.Transient, "")
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := w.List(short, owner)
		wantError(t, "list", err, provider.Transient, provider.HostTimeout)
		w.wantHost(t, provider.HostTimeout)
	},
	config.FaultHostRefuses: func(t *testing.T, w *world) {
		w.callsFail(t, provider.Unauthorized, "")
		w.wantHost(t, provider.HostUnauthorized)
		w.ofItsInstances(t, probe.Succeeded)
	},
	config.FaultHostIncapable: func(t *testing.T, w *world) {
		_, err := w.create("shop-1")
		wantError(t, "create", err, provider.Permanent, provider.HostIncapable)
		_, err = w.Get(t.Context(), owner, refA)
		wantError(t, "get", err, provider.NotFound, "")
		w.wantHost(t, provider.HostIncapable)
	},
	config.FaultHostDegraded: func(t *testing.T, w *world) {
		w.mustCreate(t, "shop-1")
		for range 3 {
			_, err := w.Get(t.Context(), owner, refA)
			wantError(t, "second call", err, provider.Transient, "")
			if _, err := w.Get(t.Context(), owner, refA); err != nil {
				t.Errorf("third call: %v", err)
			}
		}
		w.wantHost(t, provider.HostDegraded)
	},
	config.FaultSlowHost: func(t *testing.T, w *world) {
		// One caller gives up, alone; the other has its answer after 3 s.
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, made := make(chan error), make(chan error)
		go func() { _, err := w.Get(ctx, owner, refA); gaveUp <- err }()
		go func() { _, err := w.create("shop-1"); made <- err }()
		eventually(t, "both wait", func() bool { return w.clock.waiting() == 2 })
		cancel()
		wantError(t, "get", <-gaveUp, provider.Transient, "")
		w.clock.advance(3*time.Second - 1)
		select {
		case err := <-made:
			t.Errorf("create was quick: %v", err)
		default:
		}
		w.clock.advance(1)
		if err := <-made; err != nil {
			t.Errorf("create: %v", err)
		}
		w.wantHost(t, provider.HostReady)
	},
	config.FaultNoRoom: func(t *testing.T, w *world) {
		_, err := w.create("shop-1")
		wantError(t, "create", err, provider.Capacity, "")
		w.wantHost(t, provider.HostReady)
	},
	config.FaultSlowImage: func(t *testing.T, w *world) {
		_, err := w.create("shop-1")
		wantError(t, "create", err, provider.InProgress, "")
		w.clock.advance(5 * time.Second)
		_, err = w.create("shop-1")
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Progress != 25 {
			t.Errorf("after a quarter of the time: %+v", err)
		}
		w.clock.advance(15 * time.Second)
		w.booted(t, "shop-1")
	},
	config.FaultCreateFails: func(t *testing.T, w *world) {
		for range 3 {
			_, err := w.create("shop-1")
			wantError(t, "create", err, provider.Permanent, "")
		}
		wantError(t, "delete", w.Delete(t.Context(), owner, refA), provider.NotFound, "")
	},
	config.FaultCreateFailsTwice: func(t *testing.T, w *world) {
		for range 2 {
			_, err := w.create("shop-1")
			wantError(t, "create", err, provider.Transient, "")
		}
		w.booted(t, "shop-1")
	},
	config.FaultNameTaken: func(t *testing.T, w *world) {
		_, err := w.create("shop-1")
		wantError(t, "create", err, provider.Conflict, "")
	},
	config.FaultSlowBoot: func(t *testing.T, w *world) {
		w.mustCreate(t, "shop-1")
		w.clock.advance(32*time.Second - 1)
		if i := w.wantState(t, provider.StateRunning); len(i.Addresses) > 0 {
			t.Errorf("it has an address already: %+v", i)
		}
		w.clock.advance(1)
		w.wantProbe(t, w.get(t), probe.Succeeded)
	},
	config.FaultBootFails: func(t *testing.T, w *world) {
		first := w.mustCreate(t, "shop-1")
		w.clock.advance(2 * time.Second)
		if i := w.wantState(t, provider.StateCrashed); len(i.Addresses) > 0 {
			t.Errorf("it has an address: %+v", i)
		}
		if again := w.mustCreate(t, "shop-1"); !again.Created.After(first.Created) || again.State != provider.StateRunning {
			t.Errorf("create on a crashed instance gave %+v", again)
		}
		w.clock.advance(2 * time.Second)
		w.wantState(t, provider.StateCrashed)
	},
	config.FaultNeverGetsAddress: func(t *testing.T, w *world) {
		w.mustCreate(t, "shop-1")
		w.clock.advance(time.Hour)
		if i := w.wantState(t, provider.StateRunning); len(i.Addresses) > 0 {
			t.Errorf("it has an address: %+v", i)
		}
	},
	config.FaultDiesAfter: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		w.wantProbe(t, i, probe.Succeeded)
		w.clock.advance(60*time.Second - 1)
		w.wantState(t, provider.StateRunning)
		w.clock.advance(1)
		w.wantState(t, provider.StateCrashed)
		w.wantProbe(t, i, probe.PortClosed)
		if again := w.booted(t, "shop-1"); again.Addresses[0] != i.Addresses[0] {
			t.Errorf("made anew it has %v, not %v", again.Addresses, i.Addresses)
		}
	},
	config.FaultStopsAfter: func(t *testing.T, w *world) {
		first := w.booted(t, "shop-1")
		w.clock.advance(60 * time.Second)
		w.wantState(t, provider.StateStopped)
		w.wantProbe(t, first, probe.PortClosed)
		if again := w.booted(t, "shop-1"); !again.Created.Equal(first.Created) {
			t.Errorf("it was made anew, not started: %+v", again)
		}
	},
	config.FaultVanishesAfter: func(t *testing.T, w *world) {
		first := w.booted(t, "shop-1")
		w.clock.advance(60 * time.Second)
		_, err := w.Get(t.Context(), owner, refA)
		wantError(t, "get", err, provider.NotFound, "")
		w.wantProbe(t, first, probe.PortClosed)
		w.booted(t, "shop-1")
	},
	config.FaultPauses: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		for range 2 {
			w.wantProbe(t, i, probe.Succeeded)
			w.clock.advance(30 * time.Second)
			w.wantState(t, provider.StatePaused)
			w.wantProbe(t, i, probe.PortClosed)
			_, err := w.create("shop-1")
			wantError(t, "create", err, provider.Transient, "Paused")
			w.clock.advance(30 * time.Second)
			w.wantState(t, provider.StateRunning)
		}
	},
	config.FaultPortClosed: func(t *testing.T, w *world) { w.wantProbe(t, w.booted(t, "shop-1"), probe.PortClosed) },
	config.FaultFlaps: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		for range 2 {
			w.wantProbe(t, i, probe.Succeeded)
			w.clock.advance(20 * time.Second)
			w.wantProbe(t, i, probe.PortClosed)
			w.wantState(t, provider.StateRunning)
			w.clock.advance(20 * time.Second)
		}
	},
	config.FaultSilentProxy: func(t *testing.T, w *world) {
		if v := w.probed(t, w.booted(t, "shop-1"), 200*time.Millisecond); v.Reason != probe.EgressFailed {
			t.Errorf("the probe says %s (%s)", v.Reason, v.Message)
		}
	},
	config.FaultNoEgress: func(t *testing.T, w *world) { w.wantProbe(t, w.booted(t, "shop-1"), probe.EgressFailed) },
	config.FaultSlowProxy: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		verdict := make(chan probe.Verdict)
		before := w.clock.waiting()
		go func() { verdict <- w.probed(t, i, 10*time.Second) }()
		eventually(t, "the proxy is slow", func() bool { return w.clock.waiting() > before })
		w.clock.advance(2 * time.Second)
		if v := <-verdict; v.Reason != probe.Succeeded {
			t.Errorf("the probe says %s (%s)", v.Reason, v.Message)
		}
	},
	config.FaultAuthBroken: func(t *testing.T, w *world) { w.wantProbe(t, w.booted(t, "shop-1"), probe.AuthFailed) },
	config.FaultOpenProxy:  func(t *testing.T, w *world) { w.wantProbe(t, w.booted(t, "shop-1"), probe.OpenProxy) },
	config.FaultWrongExit: func(t *testing.T, w *world) {
		if v := w.wantProbe(t, w.booted(t, "shop-1"), probe.Succeeded); v.Exit != netip.MustParseAddr("127.255.255.254") {
			t.Errorf("exit %v", v.Exit)
		}
	},
	config.FaultAgentSilent: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		client := agentapi.Client{Address: w.endpoint(i), Key: controlKey}
		if status, err := client.Status(t.Context()); err == nil {
			t.Errorf("the agent answered %+v", status)
		}
		w.wantProbe(t, i, probe.Succeeded)
	},
	config.FaultDeleteFails: func(t *testing.T, w *world) {
		w.booted(t, "shop-1")
		wantError(t, "delete", w.Delete(t.Context(), owner, refA), provider.Transient, "")
		w.clock.advance(60*time.Second - 1)
		wantError(t, "delete", w.Delete(t.Context(), owner, refA), provider.Transient, "")
		w.wantState(t, provider.StateRunning)
		w.clock.advance(1)
		if err := w.Delete(t.Context(), owner, refA); err != nil {
			t.Errorf("delete after 60 s: %v", err)
		}
		wantError(t, "delete", w.Delete(t.Context(), owner, refA), provider.NotFound, "")
	},
	config.FaultSlowDelete: func(t *testing.T, w *world) {
		i := w.booted(t, "shop-1")
		for range 2 {
			if err := w.Delete(t.Context(), owner, refA); err != nil {
				t.Errorf("delete: %v", err)
			}
			w.wantState(t, provider.StateStopped)
			w.clock.advance(5*time.Second - 1)
		}
		w.wantProbe(t, i, probe.PortClosed)
		_, err := w.create("shop-1")
		wantError(t, "create", err, provider.Transient, "")
		w.clock.advance(2)
		wantError(t, "delete", w.Delete(t.Context(), owner, refA), provider.NotFound, "")
	},
}

// callsFail holds every call to a host to one failure.
func (w *world) callsFail(t *testing.T, kind provider.Kind, reason string) {
	t.Helper()
	_, err := w.create("shop-1")
	wantError(t, "create", err, kind, reason)
	_, err = w.Get(t.Context(), owner, refA)
	wantError(t, "get", err, kind, reason)
	_, err = w.List(t.Context(), owner)
	wantError(t, "list", err, kind, reason)
	wantError(t, "delete", w.Delete(t.Context(), owner, refA), kind, reason)
	wantError(t, "retain", w.Retain(t.Context(), owner, refA), kind, reason)
}

// ofItsInstances makes an instance while the host's faults are away, and probes it when they are back.
func (w *world) ofItsInstances(t *testing.T, reason probe.Reason) {
	t.Helper()
	h := HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100, BootTime: 2 * time.Second}
	faults := w.hosts["sim-1"].Faults
	w.attach(t, owner, h)
	i := w.booted(t, "shop-1")
	w.wantProbe(t, i, probe.Succeeded)
	h.Faults = faults
	w.attach(t, owner, h)
	w.wantProbe(t, i, reason)
}

func TestFaults(t *testing.T) {
	for _, known := range config.KnownFaults() {
		t.Run(known.Name, func(t *testing.T) {
			try, ok := faultCases[known.Name]
			if !ok {
				t.Fatal("this fault has no case")
			}
			try(t, newWorld(t, known.Name))
		})
	}
	if len(faultCases) != len(config.KnownFaults()) {
		t.Errorf("%d cases for %d faults", len(faultCases), len(config.KnownFaults()))
	}
}
