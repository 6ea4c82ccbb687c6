// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Options of a Provider. Cluster and Entry are required.
type Options struct {
	// Cluster is the cluster ID: 6 to 32 characters a-z and 0-9.
	Cluster string
	// Entry of the providers file, validated and with its defaults. With a socket its instances live in the simulator behind it, and
	// otherwise in a World of the Provider's own.
	Entry config.Entry
	// Version that the agents of instances in this process say they have.
	Version string
	Log     *slog.Logger

	clock clock
}

// Retries of a simulator that is not there.
const (
	minRetry = 500 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Provider makes the instances of one entry.
type Provider struct {
	api         API
	owner       Owner
	entry       config.Entry
	description Description
	log         *slog.Logger
	clock       clock

	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	watch provider.Watchers

	mu    sync.Mutex
	hosts []provider.HostState
}

var (
	_ provider.Provider       = (*Provider)(nil)
	_ provider.Watcher        = (*Provider)(nil)
	_ provider.Retainer       = (*Provider)(nil)
	_ provider.SpaceReclaimer = (*Provider)(nil)
	_ provider.Closer         = (*Provider)(nil)
)

// New makes a Provider and starts to watch its hosts; Close ends it.
func New(o Options) (*Provider, error) {
	if err := provider.CheckCluster(o.Cluster); err != nil {
		return nil, err
	}
	description, err := describe(o.Entry)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = systemClock{}
	}
	p := &Provider{
		owner: Owner{Cluster: o.Cluster, Entry: o.Entry.Name}, entry: o.Entry, description: description, log: o.Log, clock: o.clock,
	}
	if o.Entry.Socket != "" {
		p.api = NewClient(o.Entry.Socket)
	} else {
		p.api = NewWorld(WorldOptions{Version: o.Version, Log: o.Log, clock: o.clock})
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.allHosts(provider.HostUnknown, "not looked at yet")
	p.background.Go(p.follow)
	return p, nil
}

// Close ends background work and connections, and a World of the Provider's own with its instances.
func (p *Provider) Close() {
	p.stop()
	p.background.Wait()
	p.api.Close()
}

// follow keeps what is known of the hosts up to date, and passes on what changes, until the Provider is closed.
func (p *Provider) follow() {
	retry := minRetry
	for {
		// A simulator that knows the entry may know it as an older providers file had it.
		err := p.api.Attach(p.ctx, p.owner, p.description)
		if err == nil {
			err = p.api.Watch(p.ctx, p.owner, func(e Event) { retry = minRetry; p.heard(e) })
		}
		if p.ctx.Err() != nil {
			return
		}
		p.lost(err)
		if !sleep(p.ctx, nil, p.clock, retry) {
			return
		}
		retry = min(2*retry, maxRetry)
	}
}

// attached makes a call, and once more after it described the entry to a simulator that does not know it.
func (p *Provider) attached(ctx context.Context, do func() error) error {
	err := do()
	var known *provider.Error
	if errors.As(err, &known) && known.Reason == ReasonNotAttached {
		if err := p.api.Attach(ctx, p.owner, p.description); err != nil {
			return err
		}
		return do()
	}
	return err
}

// heard takes over what a World tells.
func (p *Provider) heard(e Event) {
	p.mu.Lock()
	readiness := false
	for i := range e.Hosts {
		h := &e.Hosts[i]
		if of, ok := p.entry.Host(h.Name); ok {
			h.Unschedulable = !of.IsSchedulable()
		}
		readiness = readiness || i >= len(p.hosts) || p.hosts[i].Ready != h.Ready
	}
	p.hosts = e.Hosts
	p.mu.Unlock()
	if readiness {
		p.watch.Tell("")
	}
	for _, uid := range e.UIDs {
		p.watch.Tell(uid)
	}
}

// lost shows that nothing is heard any more, and why.
func (p *Provider) lost(err error) {
	reason, message := provider.HostUnreachable, err.Error()
	var known *provider.Error
	if errors.As(err, &known) && known.Kind == provider.Permanent {
		reason = provider.HostIncapable
	}
	if p.allHosts(reason, message) {
		p.log.Warn("the simulator's hosts cannot be used", "error", err)
		p.watch.Tell("")
	}
}

// allHosts sets the same of all hosts, and says whether that is news.
func (p *Provider) allHosts(reason, message string) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.hosts
	p.hosts = nil
	for i, h := range p.entry.Hosts {
		p.hosts = append(p.hosts, provider.HostState{
			Name: h.Name, Reason: reason, Message: message, Unschedulable: !h.IsSchedulable(), MaxInstances: h.Capacity,
		})
		news = news || i >= len(old) || old[i].Reason != reason || old[i].Message != message
	}
	return news
}

// Hosts says what was last heard of each host.
func (p *Provider) Hosts() []provider.HostState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]provider.HostState(nil), p.hosts...)
}

// Watch calls notify for each Proxy whose instance changed, until ctx ends.
func (p *Provider) Watch(ctx context.Context, notify func(uid string)) error {
	return p.watch.Watch(ctx, p.ctx, notify)
}

// Create makes the instance, or has it run where it does not.
func (p *Provider) Create(ctx context.Context, spec provider.InstanceSpec) (i provider.Instance, err error) {
	err = p.call(ctx, spec.InstanceRef, func(ctx context.Context) error {
		i, err = p.api.Create(ctx, p.owner, spec)
		return err
	})
	return i, err
}

// Get reads the instance.
func (p *Provider) Get(ctx context.Context, ref provider.InstanceRef) (i provider.Instance, err error) {
	err = p.call(ctx, ref, func(ctx context.Context) error {
		i, err = p.api.Get(ctx, p.owner, ref)
		return err
	})
	return i, err
}

// Delete removes the instance, and returns NotFound once it is gone.
func (p *Provider) Delete(ctx context.Context, ref provider.InstanceRef) error {
	return p.call(ctx, ref, func(ctx context.Context) error { return p.api.Delete(ctx, p.owner, ref) })
}

// Retain marks the instance as retained.
func (p *Provider) Retain(ctx context.Context, ref provider.InstanceRef) error {
	return p.call(ctx, ref, func(ctx context.Context) error { return p.api.Retain(ctx, p.owner, ref) })
}

// List returns every instance of this cluster and entry on all hosts: complete, or an error.
func (p *Provider) List(ctx context.Context) (all []provider.Instance, err error) {
	err = p.attempt(ctx, func(ctx context.Context) error {
		all, err = p.api.List(ctx, p.owner)
		return err
	})
	return all, err
}

// call makes a call about one instance.
func (p *Provider) call(ctx context.Context, ref provider.InstanceRef, do func(context.Context) error) error {
	if _, ok := p.entry.Host(ref.Host); !ok {
		return permanent(ref.Host, fmt.Sprintf("entry %s has no such host", p.entry.Name), "name one of: "+strings.Join(p.entry.HostNames(), ", "))
	}
	return p.attempt(ctx, do)
}

// attempt makes a call that ends with its context and with the Provider.
func (p *Provider) attempt(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if ctx.Err() != nil || p.ctx.Err() != nil {
		return ended(ctx, "")
	}
	return asError(p.attached(ctx, func() error { return do(ctx) }))
}
