// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agent"
	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// DefaultInterval is how often the exits are looked at where Options does not say.
const DefaultInterval = 2 * time.Second

// Options of a Provider. Cluster and Entry are required.
type Options struct {
	// Cluster is the cluster ID: 6 to 32 characters a-z and 0-9.
	Cluster string
	// Entry of the providers file, of type local, as it was loaded.
	Entry config.Entry
	// Reflectors are host:port targets that every exit may reach.
	Reflectors []string
	// Version that the instances' control channels say.
	Version string
	// Interval at which the exits are looked at; DefaultInterval where it is 0.
	Interval time.Duration
	Log      *slog.Logger

	// machine is this one, but in tests.
	machine machine
}

// Provider makes instances on the exits of one entry.
type Provider struct {
	cluster, entry, version string
	limits                  agentapi.Limits
	log                     *slog.Logger
	watch                   provider.Watchers
	look                    chan struct{}

	// mu guards what the slots hold. It is held while a listener is opened, and never for longer.
	mu    sync.Mutex
	slots []*slot
	// waiting are Proxies that found another program on their address.
	waiting map[string]netip.AddrPort

	background sync.WaitGroup
	ctx        context.Context
	stop       context.CancelFunc
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)
	_ provider.Closer   = (*Provider)(nil)
)

// New makes a Provider and starts to look at its exits; Close ends it.
func New(o Options) (*Provider, error) {
	if err := provider.CheckCluster(o.Cluster); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.machine == nil {
		o.machine = thisMachine{}
	}
	exits := o.Entry.Exits()
	p := &Provider{
		cluster: o.Cluster, entry: o.Entry.Name, version: o.Version, log: o.Log,
		limits: agent.BoundByDescriptors(agentapi.Limits{}, max(1, len(exits)), o.Log),
		look:   make(chan struct{}, 1), waiting: map[string]netip.AddrPort{},
	}
	for _, x := range exits {
		policy, err := destination.NewPolicy(rules(x, o.Entry.Destinations.Prefixes(), o.Reflectors))
		if err != nil {
			return nil, err
		}
		s := &slot{exit: newExit(x, o.machine, policy, p.limits.DialTimeout(), p.lookSoon)}
		if h, ok := o.Entry.Host(x.Name); ok {
			s.unschedulable = !h.IsSchedulable()
		}
		p.slots = append(p.slots, s)
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.lookAtAll()
	p.background.Go(func() { p.watchExits(o.Interval) })
	return p, nil
}

// Close ends all instances, and returns when no goroutine is left.
func (p *Provider) Close() {
	p.stop()
	p.mu.Lock()
	for _, s := range p.slots {
		if s.instance != nil {
			s.instance.shut()
		}
	}
	p.mu.Unlock()
	p.background.Wait()
}

// Hosts says how the exits are.
func (p *Provider) Hosts() []provider.HostState {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make([]provider.HostState, 0, len(p.slots))
	for _, s := range p.slots {
		state := provider.HostState{
			Name: s.exit.Name, Ready: true, Reason: provider.HostReady, Message: "ready", Unschedulable: s.unschedulable, MaxInstances: 1,
		}
		if wrong := s.problem(); wrong.exists() {
			state.Ready, state.Reason, state.Message = false, wrong.reason, wrong.String()
		}
		if s.instance != nil {
			state.Instances = 1
		}
		states = append(states, state)
	}
	return states
}

// Watch calls notify for each Proxy whose exit went away or came back, and with an empty UID when an exit becomes free, until ctx ends.
func (p *Provider) Watch(ctx context.Context, notify func(uid string)) error {
	return p.watch.Watch(ctx, p.ctx, notify)
}

// lookSoon has the exits looked at now instead of at the next tick. It does not block.
func (p *Provider) lookSoon() {
	select {
	case p.look <- struct{}{}:
	default:
	}
}

// watchExits looks at the exits until Close.
func (p *Provider) watchExits(interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.look:
		case <-p.ctx.Done():
			return
		}
		p.lookAtAll()
	}
}

// lookAtAll looks at every exit, has listeners follow their addresses, and tells who waits for what changed.
func (p *Provider) lookAtAll() {
	for _, s := range p.slots {
		p.refresh(s)
	}
	for _, uid := range p.settle() {
		p.watch.Tell(uid)
	}
}

// refresh looks at one exit, and at where an instance on it would listen.
func (p *Provider) refresh(s *slot) {
	is := s.exit.refresh()
	var unlistenable problem
	if a := s.exit.Listen; a.IsValid() && !is.has(a) {
		if err := s.exit.machine.canBind(a); err != nil && !starved(err) {
			unlistenable = unbindable(a, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.unlistenable = unlistenable
}

// settle brings listeners to where they belong, and returns the UIDs of the Proxies concerned.
func (p *Provider) settle() (changed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.instance != nil {
			p.upkeep(s)
		}
		if uid, news := s.news(); news {
			changed = append(changed, uid)
		}
	}
	for uid, address := range p.waiting {
		if listener, err := listen(p.ctx, address); err == nil {
			_ = listener.Close()
			delete(p.waiting, uid)
			changed = append(changed, uid)
		}
	}
	return changed
}
