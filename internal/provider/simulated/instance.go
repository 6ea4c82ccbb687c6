// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// instance is one simulated instance: its mark, and where it is in its life.
type instance struct {
	key   key
	owner Owner
	// uid in canonical form.
	uid                  string
	namespace, proxyName string
	shape                provider.Shape
	agentVersion         string
	created, started     time.Time
	retained             bool
	// boot is how long the boot takes that began at started, and booted says that it has ended well.
	boot   time.Duration
	booted bool

	address     netip.Addr
	controlKey  agentapi.Key
	credentials []agentapi.Credential

	// over is the state in which it came to its end, with why; empty while it goes on. What is over stays so, whatever faults are
	// taken away, until it is started or made anew.
	over    provider.State
	overWhy string
	// deleteAsked is when its removal was asked for first, and goneAt when that ends; zero: not asked, or not slow.
	deleteAsked, goneAt time.Time

	now       life // as last reviewed
	exit      *exit
	stopTimer func()
}

// halt ends what runs of it.
func (i *instance) halt() {
	if i.stopTimer != nil {
		i.stopTimer()
		i.stopTimer = nil
	}
	if i.exit != nil {
		i.exit.stop()
		i.exit = nil
	}
}

// view is what its host says of it.
func (i *instance) view() provider.Instance {
	v := provider.Instance{
		InstanceRef: provider.InstanceRef{Host: i.key.host, UID: i.uid}, Namespace: i.namespace, Name: i.proxyName,
		ProviderID: providerID(i.key.host, i.key.name), State: i.now.state, StateReason: i.now.reason,
		Shape: i.shape, AgentVersion: i.agentVersion, Created: i.created, Started: i.started, Retained: i.retained,
	}
	if i.now.addressed {
		v.Addresses = []netip.Addr{i.address}
	}
	return v
}

// review brings an instance to where its faults and its age say that it is, and sees to it that it is reviewed again in time.
func (w *World) review(i *instance) {
	if w.closed() {
		return
	}
	now := w.clock.Now()
	faults := w.faultsOf(i.owner, i.key.host, i.proxyName)
	before := i.now
	next := i.live(faults, now)
	if i.now.state == stateVanished {
		w.log.Info("instance vanished", "host", i.key.host, "instance", i.key.name)
		w.forget(i)
		w.tell(i.owner, i.uid)
		return
	}
	w.serve(i, behaviourOf(faults))
	if i.stopTimer != nil {
		i.stopTimer()
		i.stopTimer = nil
	}
	if !next.IsZero() {
		i.stopTimer = w.clock.AfterFunc(next.Sub(now), func() { w.timeFor(i) })
	}
	if before.state == "" {
		return // new: who makes it sees what it is like
	}
	if before.state != i.now.state || before.reason != i.now.reason || before.addressed != i.now.addressed {
		w.log.Info("instance changed", "host", i.key.host, "instance", i.key.name, "state", i.now.state, "reason", i.now.reason)
		w.tell(i.owner, i.uid)
	}
}

// live sets what the instance is like now, and returns when that changes; zero: never.
func (i *instance) live(faults faultSet, now time.Time) time.Time {
	if !i.goneAt.IsZero() {
		if !now.Before(i.goneAt) {
			i.now = life{state: stateVanished}
			return time.Time{}
		}
		i.now = life{state: provider.StateStopped, reason: "is being removed"}
		return i.goneAt
	}
	if i.over == "" {
		if i.booted {
			faults = faults.afterBoot()
		}
		i.now = lifeAt(faults, i.boot, now.Sub(i.started))
		i.booted = i.booted || i.now.addressed
		if i.now.state == provider.StateCrashed || i.now.state == provider.StateStopped {
			i.over, i.overWhy = i.now.state, i.now.reason
		}
	}
	if i.over != "" {
		i.now = life{state: i.over, reason: i.overWhy}
	}
	if i.now.next == 0 {
		return time.Time{}
	}
	return i.started.Add(i.now.next)
}

// start begins a boot.
func (w *World) start(i *instance) {
	i.over, i.started, i.booted = "", w.clock.Now(), false
	i.boot = w.hosts[i.key.host].BootTime
	if w.faultsOf(i.owner, i.key.host, i.proxyName)[config.FaultSlowBoot] {
		i.boot += slowBootTime
	}
	w.review(i)
}

// timeFor reviews an instance whose time has come, if it is still there.
func (w *World) timeFor(i *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.instances[i.key] == i {
		w.review(i)
	}
}

// serve opens or closes the instance's port, and has it treat its clients as its faults say.
func (w *World) serve(i *instance, b behaviour) {
	if i.exit != nil && (!i.now.listening || i.exit.behaviour != b) {
		i.exit.stop()
		i.exit = nil
	}
	if !i.now.listening || i.exit != nil {
		return
	}
	exit, err := w.open(i, b)
	if err != nil {
		// Somebody else took the port meanwhile: made anew, it gets another address.
		i.over, i.overWhy = provider.StateCrashed, "its port cannot be opened: "+err.Error()
		i.now = life{state: i.over, reason: i.overWhy}
		return
	}
	i.exit = exit
}

// forget removes an instance, and gives its address back.
func (w *World) forget(i *instance) {
	i.halt()
	delete(w.instances, i.key)
	delete(w.taken, i.address)
}

// sorted are all instances by host and name.
func (w *World) sorted() []*instance {
	all := make([]*instance, 0, len(w.instances))
	for _, i := range w.instances {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.key.host, b.key.host), cmp.Compare(a.key.name, b.key.name))
	})
	return all
}
