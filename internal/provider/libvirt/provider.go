// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// DefaultCheckInterval is how often each host is looked at where Options does not say.
const DefaultCheckInterval = 30 * time.Second

// Options of a Provider. Cluster, Entry and Backend are required; Agent where an instance is to run our agent.
type Options struct {
	// Cluster is the cluster ID: 6 to 32 characters a-z and 0-9.
	Cluster string
	// Entry of the providers file, validated and with its defaults.
	Entry config.Entry
	// Reflectors are host:port targets that agents may always reach.
	Reflectors []string
	// Backend reaches one host's daemon. It does no I/O itself.
	Backend func(config.Host) Backend
	// Images opens images; the entry's own bounds go on top.
	Images image.Opener
	// Depot is what all entries' fetches share; nil for one of this Provider's own, without a spool. It outlives the Provider.
	Depot *image.Depot
	// Places is what all entries of the providers file share; nil where this entry is the only one.
	Places *Places
	// Agent gives the agent for an architecture.
	Agent AgentSource
	// CheckInterval is how often each host is looked at for Hosts.
	CheckInterval time.Duration
	// PollInterval is how often the states of each host's domains are read, whoever asks for them.
	PollInterval time.Duration
	Log          *slog.Logger
}

// AgentSource gives the agent for an architecture, from the operator's own files.
type AgentSource func(arch string) (AgentFile, error)

// AgentFile is an agent for one architecture.
type AgentFile struct {
	Version string
	// SHA256 of the content, in hexadecimal.
	SHA256 string
	// Read gives the content: a static binary of some MiB.
	Read func() ([]byte, error)
}

// Provider makes instances on the hosts of one entry.
type Provider struct {
	names      Names
	entry      config.Entry
	reflectors []string
	images     image.Opener
	depot      *image.Depot
	places     *Places
	fetches    *fetches
	agent      AgentSource
	log        *slog.Logger

	hosts map[string]*host
	locks keyLock
	watch provider.Watchers
	// consoles that are read.
	consoles *consoles

	background sync.WaitGroup
	ctx        context.Context
	stop       context.CancelFunc
}

var (
	_ provider.Provider       = (*Provider)(nil)
	_ provider.Watcher        = (*Provider)(nil)
	_ provider.Retainer       = (*Provider)(nil)
	_ provider.Closer         = (*Provider)(nil)
	_ provider.Puller         = (*Provider)(nil)
	_ provider.SpaceReclaimer = (*Provider)(nil)
	_ provider.AddressHolder  = (*Provider)(nil)
	_ provider.AddressDoubter = (*Provider)(nil)
	_ provider.Consoler       = (*Provider)(nil)
)

// New makes a Provider and starts to look at its hosts; Close ends it.
func New(o Options) (*Provider, error) {
	p, err := assemble(o)
	if err != nil {
		return nil, err
	}
	check, poll := cmp.Or(max(o.CheckInterval, 0), DefaultCheckInterval), cmp.Or(max(o.PollInterval, 0), pollEvery)
	for _, h := range p.hosts {
		p.background.Go(func() { p.watchHost(p.ctx, h, check) })
		p.background.Go(func() { p.listenHost(p.ctx, h) })
		p.background.Go(func() { p.pollHost(p.ctx, h, poll) })
	}
	return p, nil
}

// assemble makes a Provider that does nothing of its own accord.
func assemble(o Options) (*Provider, error) {
	names, err := NewNames(o.Cluster)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Provider{
		names: names, entry: o.Entry, reflectors: o.Reflectors, images: o.Images, agent: o.Agent, log: o.Log,
		hosts: make(map[string]*host, len(o.Entry.Hosts)),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.consoles = newConsoles(p.ctx, p.owns)
	if p.depot = o.Depot; p.depot == nil {
		if p.depot, err = image.NewDepot(image.DepotOptions{}); err != nil {
			return nil, err
		}
	}
	if p.places = o.Places; p.places == nil {
		p.places = NewPlaces([]config.Entry{o.Entry})
	}
	p.fetches = newFetches(p.depot, p.watch.Tell)
	for _, cfg := range o.Entry.Hosts {
		p.hosts[cfg.Name] = newHost(p.ctx, cfg, o.Backend(cfg))
	}
	return p, nil
}

// Close ends background work and the connections, and returns when no goroutine is left.
func (p *Provider) Close() {
	p.stop()
	p.fetches.manager.Close()
	p.background.Wait()
	p.consoles.close()
	for _, h := range p.hosts {
		h.census.close()
		h.backend.Close()
	}
}

// Watch calls notify for each Proxy whose background work moved on, until ctx ends.
func (p *Provider) Watch(ctx context.Context, notify func(uid string)) error {
	return p.watch.Watch(ctx, p.ctx, notify)
}

// target is one instance on one host.
type target struct {
	*host
	// uid in canonical form.
	uid, domain string
}

// object is how messages name the instance.
func (t target) object() string { return "domain " + t.domain }

// target resolves a reference.
func (p *Provider) target(ref provider.InstanceRef) (target, error) {
	uid, ok := provider.CanonicalUID(ref.UID)
	if !ok {
		return target{}, &provider.Error{Kind: provider.Permanent, Host: ref.Host, Message: fmt.Sprintf("the UID %q is not a UUID", ref.UID)}
	}
	h, ok := p.hosts[ref.Host]
	if !ok {
		return target{}, &provider.Error{
			Kind: provider.Permanent, Host: ref.Host, Message: fmt.Sprintf("entry %s has no such host", p.entry.Name),
			Next: "name one of: " + strings.Join(p.entry.HostNames(), ", "),
		}
	}
	return target{h, uid, p.names.Domain(uid)}, nil
}

// locked resolves a reference and holds the instance until unlock.
func (p *Provider) locked(ctx context.Context, ref provider.InstanceRef) (t target, unlock func(), err error) {
	if t, err = p.target(ref); err != nil {
		return t, nil, err
	}
	release, err := p.locks.lock(ctx, t.uid)
	if err != nil {
		return t, nil, translate(t.name, t.object(), "waiting for another call for this instance", err)
	}
	return t, func() {
		t.census.touch(t.domain) // what was read before is not what the caller did
		t.memory.doubt(t.uid)
		release()
	}, nil
}

func (p *Provider) reserveBytes() int64 { return bytesOf(p.entry.ReserveGiB()) }

// found is a domain that is ours.
type found struct {
	DomainInfo
	Mark Mark
}

// errAbsent says that the daemon itself reported that there is no such domain.
var errAbsent = errors.New("no such domain")

// look finds the domain of t and reads its mark: errAbsent where the daemon says that there is none, Conflict where it is not ours.
func (p *Provider) look(ctx context.Context, t target) (found, error) {
	info, err := t.backend.Domain(ctx, t.domain)
	if IsCode(err, CodeNoDomain) {
		return found{}, errAbsent
	}
	if err != nil {
		return found{}, translate(t.name, t.object(), "looking for the domain", err)
	}
	mark, err := p.identify(ctx, t, info)
	return found{info, mark}, err
}

// identify reads the mark of the domain of t, with the same errors.
func (p *Provider) identify(ctx context.Context, t target, info DomainInfo) (Mark, error) {
	element, err := t.backend.Metadata(ctx, t.domain, MarkNamespace)
	switch {
	case IsCode(err, CodeNoDomain):
		return Mark{}, errAbsent
	case IsCode(err, CodeNoMetadata):
		return Mark{}, conflict(t, "a domain of this name exists and carries no mark of ours")
	case err != nil:
		return Mark{}, translate(t.name, t.object(), "reading the mark", err)
	}
	mark, err := DecodeMark(element)
	switch {
	case errors.Is(err, ErrNewer):
		return Mark{}, &provider.Error{
			Kind: provider.Permanent, Host: t.name, Object: t.object(), Message: err.Error() + "; it is left alone",
			Next: "use an operator of that version", Err: err,
		}
	case err != nil:
		return Mark{}, conflict(t, bounded(err.Error()))
	case !mark.Owned(p.names.cluster, p.entry.Name, t.uid):
		return Mark{}, conflict(t, fmt.Sprintf("it belongs to cluster %q, entry %q, UID %q", mark.Cluster, mark.Entry, mark.UID))
	case !SameUID(info.UUID, p.names.DomainUUID(t.uid)):
		return Mark{}, conflict(t, "it has our mark, and not our UUID: "+info.UUID)
	case mark.Pool != t.cfg.Pool:
		return Mark{}, &provider.Error{
			Kind: provider.Permanent, Host: t.name, Object: t.object(),
			Message: fmt.Sprintf("its volumes are in pool %q, and the providers file now says pool %q for this host; it is left alone", mark.Pool, t.cfg.Pool),
			Next:    fmt.Sprintf("set the host's pool back to %q until its instances are deleted", mark.Pool),
		}
	}
	return mark, nil
}

func conflict(t target, why string) *provider.Error {
	return &provider.Error{
		Kind: provider.Conflict, Host: t.name, Object: t.object(), Message: why + "; it is left alone",
		Next: "rename or remove it on the host, or restore its mark",
	}
}

func absent(t target) *provider.Error {
	return &provider.Error{Kind: provider.NotFound, Host: t.name, Object: t.object(), Message: "the host has no such instance"}
}

// instance is what the provider says of a domain of ours.
func (t target) instance(f found) provider.Instance {
	state, reason := StateOf(f.State, f.Reason)
	return provider.Instance{
		InstanceRef: provider.InstanceRef{Host: t.name, UID: t.uid}, Namespace: f.Mark.Namespace, Name: f.Mark.Name,
		ProviderID: ProviderID(t.name, t.domain), State: state, StateReason: reason, Shape: f.Mark.Shape,
		NIC: f.Mark.NIC, AgentVersion: f.Mark.AgentVersion, Created: notAfter(f.Mark.Created, time.Now()), Retained: f.Mark.Retained,
	}
}

// notAfter is a time that somebody else wrote, or now where it is in the future.
func notAfter(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}
