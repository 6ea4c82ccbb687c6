// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// An instance's faults reach it by its host, by a rule of its entry, by its Proxy's name, and at run time.
func TestFaultsReachInstances(t *testing.T) {
	for name, give := range map[string]func(*testing.T, *world) (proxy string){
		"by a rule of the entry": func(t *testing.T, w *world) string {
			d := Description{Hosts: []HostDescription{w.hosts["sim-1"].HostDescription}, Rules: []Rule{{Fault: config.FaultPortClosed, Proxies: "shop-*"}}}
			if err := w.Attach(t.Context(), owner, d); err != nil {
				t.Fatal(err)
			}
			return "shop-1"
		},
		"by the Proxy's name":            func(*testing.T, *world) string { return config.FaultPortClosed },
		"by the beginning of that name":  func(*testing.T, *world) string { return config.FaultPortClosed + "-7" },
		"at run time, by a Proxy's name": runTimeFault(Rule{Fault: config.FaultPortClosed, Proxies: "shop-1"}),
		"at run time, by a host's name":  runTimeFault(Rule{Fault: config.FaultPortClosed, Hosts: "sim-?"}),
		"at run time, without a pattern": runTimeFault(Rule{Fault: config.FaultPortClosed}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.wantProbe(t, w.booted(t, give(t, w)), probe.PortClosed)
			other, err := w.Create(t.Context(), owner, specOn(w.port, uidB, "other"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := w.Instances(t.Context())
			if err != nil || len(got) != 2 {
				t.Fatalf("%+v, %v", got, err)
			}
			hit := slices.IndexFunc(got, func(r Record) bool { return r.UID == other.UID })
			if everybody := len(w.rules) > 0 && w.rules[0].Proxies == ""; (len(got[hit].Faults) > 0) != everybody {
				t.Errorf("the other instance has faults %q", got[hit].Faults)
			}
		})
	}
}

func runTimeFault(r Rule) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		if err := w.SetFault(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return "shop-1"
	}
}

func TestFaultsChangeWhileAnInstanceRuns(t *testing.T) {
	w := newWorld(t)
	i := w.booted(t, "shop-1")
	set := func(fault string) {
		t.Helper()
		if err := w.SetFault(t.Context(), Rule{Fault: fault}); err != nil {
			t.Fatal(err)
		}
	}
	clearAll := func() {
		t.Helper()
		if n, err := w.ClearFaults(t.Context(), ""); err != nil || n != 1 {
			t.Errorf("cleared %d, %v", n, err)
		}
	}
	for _, c := range []struct {
		fault string
		shows probe.Reason
	}{
		{config.FaultOpenProxy, probe.OpenProxy}, {config.FaultAuthBroken, probe.AuthFailed}, {config.FaultNoEgress, probe.EgressFailed},
		{config.FaultPortClosed, probe.PortClosed}, {config.FaultHostDown, probe.PortClosed},
	} {
		set(c.fault)
		w.wantProbe(t, i, c.shows)
		clearAll()
		w.wantProbe(t, i, probe.Succeeded)
	}
	for _, boot := range []string{config.FaultBootFails, config.FaultNeverGetsAddress, config.FaultSlowBoot} {
		set(boot)
		w.wantProbe(t, w.wantState(t, provider.StateRunning), probe.Succeeded) // its boot is over
		clearAll()
	}
	w.attach(t, owner, HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100, BootTime: time.Hour})
	w.wantProbe(t, w.wantState(t, provider.StateRunning), probe.Succeeded)
	w.attach(t, owner, HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100, BootTime: 2 * time.Second})
	w.clock.advance(time.Hour)
	set(config.FaultDiesAfter)
	w.wantState(t, provider.StateCrashed)
	clearAll()
	w.wantState(t, provider.StateCrashed) // what is dead stays dead
	w.booted(t, "shop-1")
}

func TestCallFaultsOfAProxy(t *testing.T) {
	w := newWorld(t)
	_, err := w.create(config.FaultHostUnreachable)
	wantError(t, "create", err, provider.Transient, provider.HostUnreachable)
	w.wantHost(t, provider.HostReady)
	if _, err := w.List(t.Context(), owner); err != nil {
		t.Errorf("the list of all is not about this Proxy: %v", err)
	}
	i := w.booted(t, "shop-1")
	if err := w.SetFault(t.Context(), Rule{Fault: config.FaultHostUnreachable, Proxies: "shop-1"}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Get(t.Context(), owner, refA)
	wantError(t, "get", err, provider.Transient, provider.HostUnreachable)
	w.wantProbe(t, i, probe.Succeeded)
	if err := w.Delete(t.Context(), owner, refA); err != nil {
		t.Errorf("what was made for a lesson cannot be removed: %v", err)
	}
}

func TestFaultsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for _, r := range []Rule{{Fault: "boot-fail"}, {Fault: ""}, {Fault: config.FaultFlaps, Proxies: "["}, {Fault: config.FaultFlaps, Hosts: "[a"}} {
		wantError(t, "set", w.SetFault(t.Context(), r), provider.Permanent, "")
		wantError(t, "attach", w.Attach(t.Context(), owner, Description{Rules: []Rule{r}}), provider.Permanent, "")
	}
	if rules, err := w.Faults(t.Context()); err != nil || len(rules) > 0 {
		t.Errorf("faults %+v, %v", rules, err)
	}
}

func TestTurns(t *testing.T) {
	type answer struct {
		On   bool
		Next time.Duration
	}
	for up, want := range map[time.Duration]answer{
		0: {true, 20}, 19: {true, 20}, 20: {false, 30}, 29: {false, 30}, 30: {true, 50}, 59: {false, 60},
	} {
		on, next := turns(up, 20, 10)
		if diff := cmp.Diff(want, answer{on, next}); diff != "" {
			t.Errorf("after %d:\n%s", up, diff)
		}
	}
}
