// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// WorldOptions of a World; all may be left out.
type WorldOptions struct {
	// Version that the agents of instances say they have.
	Version string
	Log     *slog.Logger

	clock clock
}

// World is simulated hosts with their instances.
type World struct {
	version string
	log     *slog.Logger
	clock   clock

	// ctx ends with the World, and with it what runs in the background.
	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	hosts     map[string]*host
	owners    map[Owner]Description
	rules     []Rule // set at run time
	instances map[key]*instance
	taken     map[netip.Addr]key
	attempts  map[key]*attempt
	watchers  map[*watcher]bool
}

var _ API = (*World)(nil)

// key finds an instance: no two of a host have one name.
type key struct{ host, name string }

// host is one simulated host.
type host struct {
	HostDescription
	// calls that were made to it, for faults that hit some.
	calls int
}

// attempt is an instance that was asked for and is not made yet.
type attempt struct {
	since time.Time
	count int
}

// NewWorld makes a World without hosts; Close ends it.
func NewWorld(o WorldOptions) *World {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = systemClock{}
	}
	w := &World{
		version: o.Version, log: o.Log, clock: o.clock, hosts: map[string]*host{}, owners: map[Owner]Description{},
		instances: map[key]*instance{}, taken: map[netip.Addr]key{}, attempts: map[key]*attempt{}, watchers: map[*watcher]bool{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Close ends all instances, and returns when no goroutine is left.
func (w *World) Close() {
	w.mu.Lock()
	w.stop()
	for _, i := range w.instances {
		i.halt()
	}
	w.mu.Unlock()
	w.background.Wait()
}

// closed says whether the World ends; a timer that fires late must change nothing.
func (w *World) closed() bool { return w.ctx.Err() != nil }

// Attach describes an entry's hosts. A host that others use too cannot get other addresses while they have instances there.
func (w *World) Attach(ctx context.Context, o Owner, d Description) error {
	if ctx.Err() != nil || w.closed() {
		return ended(ctx, "")
	}
	if err := provider.CheckCluster(o.Cluster); err != nil {
		return permanent("", err.Error(), "correct the cluster ID")
	}
	if o.Entry == "" {
		return permanent("", "the entry has no name", "name it")
	}
	for _, r := range d.Rules {
		if err := r.check(); err != nil {
			return permanent("", err.Error(), "correct the providers file")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range d.Hosts {
		if known := w.hosts[h.Name]; known != nil && known.Addresses != h.Addresses && w.usedByOthers(o, h.Name) {
			return permanent(h.Name, fmt.Sprintf("another entry has instances there and describes it with addresses %s, not %s", known.Addresses, h.Addresses),
				"describe a host that entries share in the same way in each, or give it another name")
		}
	}
	for _, h := range d.Hosts {
		if w.hosts[h.Name] == nil {
			w.log.Info("host made", "host", h.Name, "addresses", h.Addresses, "capacity", h.Capacity, "bootTime", h.BootTime)
			w.hosts[h.Name] = &host{}
		}
		w.hosts[h.Name].HostDescription = h
	}
	w.owners[o] = d
	w.reviewAll()
	return nil
}

func (w *World) usedByOthers(o Owner, host string) bool {
	for k, i := range w.instances {
		if k.host == host && i.owner != o {
			return true
		}
	}
	return false
}

// reviewAll has every instance, and every watcher, take notice of changed faults.
func (w *World) reviewAll() {
	for _, i := range w.instances {
		w.review(i)
	}
	for o := range w.owners {
		w.tell(o, "")
	}
}

// faultsOf are the faults that hold for a Proxy's instance on a host, or for the host itself where proxy is empty.
func (w *World) faultsOf(o Owner, host, proxy string) faultSet {
	set := faultSet{}
	if h := w.hosts[host]; h != nil {
		for _, name := range h.Faults {
			set[name] = true
		}
	}
	for _, rules := range [][]Rule{w.owners[o].Rules, w.rules} {
		for _, r := range rules {
			if matches(r.Hosts, host) && (r.Proxies == "" || proxy != "" && matches(r.Proxies, proxy)) {
				set[r.Fault] = true
			}
		}
	}
	if name := config.FaultOfName(proxy); name != "" {
		set[name] = true
	}
	return set
}

// Instances are all instances of all owners.
func (w *World) Instances(ctx context.Context) ([]Record, error) {
	if ctx.Err() != nil || w.closed() {
		return nil, ended(ctx, "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	records := make([]Record, 0, len(w.instances))
	for _, i := range w.sorted() {
		records = append(records, Record{
			Instance: i.view(), Owner: i.owner, InstanceName: i.key.name, Listening: i.exit != nil,
			Faults: slices.Sorted(maps.Keys(w.faultsOf(i.owner, i.key.host, i.proxyName))),
		})
	}
	return records, nil
}

// Faults that were set at run time.
func (w *World) Faults(ctx context.Context) ([]Rule, error) {
	if ctx.Err() != nil || w.closed() {
		return nil, ended(ctx, "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.rules), nil
}

// SetFault sets a fault until it is cleared.
func (w *World) SetFault(ctx context.Context, r Rule) error {
	if err := r.check(); err != nil {
		return permanent("", err.Error(), "name one of these")
	}
	if ctx.Err() != nil || w.closed() {
		return ended(ctx, "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.rules, r) {
		w.rules = append(w.rules, r)
	}
	w.log.Info("fault set", "fault", r.Fault, "hosts", r.Hosts, "proxies", r.Proxies)
	w.reviewAll()
	return nil
}

// ClearFaults clears what SetFault set. An instance that a fault ended stays ended until it is made anew.
func (w *World) ClearFaults(ctx context.Context, fault string) (int, error) {
	if ctx.Err() != nil || w.closed() {
		return 0, ended(ctx, "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.rules)
	w.rules = slices.DeleteFunc(w.rules, func(r Rule) bool { return fault == "" || r.Fault == fault })
	cleared := before - len(w.rules)
	w.log.Info("faults cleared", "fault", fault, "count", cleared)
	w.reviewAll()
	return cleared, nil
}

// hostStates are the hosts of an owner as it sees them.
func (w *World) hostStates(o Owner) []provider.HostState {
	own, others := map[string]int{}, map[string]int{}
	for k, i := range w.instances {
		if i.owner == o {
			own[k.host]++
		} else {
			others[k.host]++
		}
	}
	var states []provider.HostState
	for _, d := range w.owners[o].Hosts {
		s := hostState(d.Name, w.faultsOf(o, d.Name, ""))
		s.Instances, s.MaxInstances = own[d.Name], max(d.Capacity-others[d.Name], 1)
		states = append(states, s)
	}
	return states
}
