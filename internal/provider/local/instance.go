// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Create makes the instance on its exit, or has it serve again. On an exit that is not there it makes a paused one, which serves as soon as
// the exit is back.
func (p *Provider) Create(ctx context.Context, spec provider.InstanceSpec) (provider.Instance, error) {
	s, uid, err := p.find(ctx, spec.InstanceRef)
	if err != nil {
		return provider.Instance{}, err
	}
	if wrong := checkSpec(s, spec); wrong != nil {
		return provider.Instance{}, wrong
	}
	p.refresh(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, uid)
	switch holder := s.instance; {
	case p.ctx.Err() != nil:
		return provider.Instance{}, p.closed()
	case holder == nil:
	case holder.uid != uid:
		return provider.Instance{}, &provider.Error{
			Kind: provider.Capacity, Host: s.exit.Name, Message: fmt.Sprintf("Proxy %s/%s has this exit: there is one Proxy to an exit", holder.Namespace, holder.Name),
			Next: "delete that Proxy, or give the entry more addresses or interfaces",
		}
	case holder.deleting:
		return provider.Instance{}, &provider.Error{
			Kind: provider.Transient, Host: s.exit.Name, Object: "listener " + p.listenerName(uid), Message: "is being removed", Next: "it is made anew after that",
		}
	default:
		p.upkeep(s)
		return p.describe(s), nil
	}
	return p.create(s, uid, spec)
}

// create makes the instance of a slot that has none. mu is held.
func (p *Provider) create(s *slot, uid string, spec provider.InstanceSpec) (provider.Instance, error) {
	i := &instance{
		InstanceSpec: spec, uid: uid, created: time.Now(),
		credentials: []agentapi.Credential{{Username: spec.Credentials.Username, Password: spec.Credentials.Password.Reveal()}},
	}
	copy(i.key[:], spec.ControlKey.Reveal())
	s.instance = i
	address := s.address(spec.Port)
	if !address.Addr().IsValid() {
		return p.describe(s), nil
	}
	if err := p.serve(s, address); err != nil {
		i.problem = problem{provider.HostDegraded, err.Message, err.Next}
		if err.Kind != provider.Transient {
			s.instance = nil
			if err.Kind == provider.Conflict {
				p.waiting[uid] = address
			}
			return provider.Instance{}, err
		}
	}
	return p.describe(s), nil
}

// Get reads the instance.
func (p *Provider) Get(ctx context.Context, ref provider.InstanceRef) (provider.Instance, error) {
	s, uid, err := p.find(ctx, ref)
	if err != nil {
		return provider.Instance{}, err
	}
	p.refresh(s)
	found, who, news, err := p.read(s, uid)
	if news {
		p.watch.Tell(who) // who asked here may not be the only one
	}
	return found, err
}

func (p *Provider) read(s *slot, uid string) (found provider.Instance, who string, news bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.instance == nil || s.instance.uid != uid {
		return provider.Instance{}, "", false, p.notFound(s, uid)
	}
	p.upkeep(s)
	who, news = s.news()
	return p.describe(s), who, news, nil
}

// Delete closes the instance's listener and everything that goes through it.
func (p *Provider) Delete(ctx context.Context, ref provider.InstanceRef) error {
	s, uid, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.waiting, uid)
	i := s.instance
	if i == nil || i.uid != uid {
		p.mu.Unlock()
		return p.notFound(s, uid)
	}
	i.deleting = true
	i.shut()
	ended := i.ended
	p.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return interrupted(ref.Host, ctx.Err())
		}
	}
	p.mu.Lock()
	if s.instance == i {
		s.instance = nil
	}
	p.mu.Unlock()
	p.watch.Tell("") // the exit is free
	return nil
}

// List returns every instance of this process.
func (p *Provider) List(ctx context.Context) ([]provider.Instance, error) {
	if err := p.usable(ctx, ""); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []provider.Instance{}
	for _, s := range p.slots {
		if s.instance != nil {
			all = append(all, p.describe(s))
		}
	}
	return all, nil
}

// describe is the slot's instance. mu is held.
func (p *Provider) describe(s *slot) provider.Instance {
	i := s.instance
	found := provider.Instance{
		InstanceRef: provider.InstanceRef{Host: s.exit.Name, UID: i.uid}, Namespace: i.Namespace, Name: i.Name,
		ProviderID: "hosts/" + s.exit.Name + "/listeners/" + p.listenerName(i.uid),
		State:      provider.StateRunning, Shape: i.Shape, AgentVersion: p.version, Created: i.created, Started: i.started,
	}
	if wrong := s.problem(); wrong.exists() {
		found.State, found.StateReason = provider.StatePaused, wrong.String()
	} else if i.server == nil {
		found.State, found.StateReason = provider.StatePaused, "its listener has ended; "+byItself
	}
	where := s.address(i.Port)
	if i.server != nil {
		where = i.listens
	}
	if where.Addr().IsValid() {
		found.Addresses = []netip.Addr{where.Addr()}
	}
	return found
}

// listenerName is that of a Proxy's listener, by the cluster and the UID alone.
func (p *Provider) listenerName(uid string) string {
	return "egress-" + p.cluster + "-" + provider.CompactUID(uid)
}

// find is the slot that a reference names, and the canonical UID.
func (p *Provider) find(ctx context.Context, ref provider.InstanceRef) (*slot, string, error) {
	if err := p.usable(ctx, ref.Host); err != nil {
		return nil, "", err
	}
	uid, ok := provider.CanonicalUID(ref.UID)
	if !ok {
		return nil, "", &provider.Error{Kind: provider.Permanent, Host: ref.Host, Message: fmt.Sprintf("%q is not the UID of a Proxy", ref.UID)}
	}
	at := slices.IndexFunc(p.slots, func(s *slot) bool { return s.exit.Name == ref.Host })
	if at < 0 {
		return nil, "", &provider.Error{
			Kind: provider.Permanent, Host: ref.Host, Message: "entry " + p.entry + " has no such exit",
			Next: "put its address or interface back into the providers file, or delete the Proxy",
		}
	}
	return p.slots[at], uid, nil
}

// usable says whether the call can go on.
func (p *Provider) usable(ctx context.Context, host string) error {
	if err := ctx.Err(); err != nil {
		return interrupted(host, err)
	}
	if p.ctx.Err() != nil {
		return p.closed()
	}
	return nil
}

func interrupted(host string, err error) error {
	return &provider.Error{Kind: provider.Transient, Host: host, Message: "the call was ended: " + err.Error(), Err: err}
}

func (p *Provider) closed() error {
	return &provider.Error{Kind: provider.Transient, Message: "the provider of entry " + p.entry + " is closed"}
}

func (p *Provider) notFound(s *slot, uid string) error {
	return &provider.Error{Kind: provider.NotFound, Host: s.exit.Name, Object: "listener " + p.listenerName(uid), Message: "there is none"}
}

// checkSpec refuses what a listener cannot have.
func checkSpec(s *slot, spec provider.InstanceSpec) *provider.Error {
	fields := spec.MachineFields()
	if spec.UserData.Reveal() != "" || spec.UserDataSHA256 != "" {
		fields = append(fields, "software.userData")
	}
	wrong := &provider.Error{Kind: provider.Permanent, Host: s.exit.Name}
	switch {
	case len(fields) > 0:
		wrong.Message, wrong.Next = "the proxies of a local entry are listeners, not machines", "remove "+strings.Join(fields, ", ")+" from the spec"
	case spec.Software != provider.SoftwareAgent:
		wrong.Message, wrong.Next = fmt.Sprintf("a local entry runs no software of type %s", spec.Software), "set software.type to Agent, or leave it out"
	case spec.Port < 1 || spec.Port > 65535:
		wrong.Message, wrong.Next = fmt.Sprintf("port is %d", spec.Port), "set spec.port to 1 to 65535"
	case len(spec.ControlKey.Reveal()) != agentapi.KeySize:
		wrong.Message, wrong.Next = "the control key has another length than 32 bytes", "restart the operator; if it stays so, report it"
	default:
		credentials := []agentapi.Credential{{Username: spec.Credentials.Username, Password: spec.Credentials.Password.Reveal()}}
		err := agentapi.ValidateCredentials(credentials)
		if err == nil {
			return nil
		}
		wrong.Message, wrong.Next = err.Error(), "correct the Secret of the Proxy"
	}
	return wrong
}
