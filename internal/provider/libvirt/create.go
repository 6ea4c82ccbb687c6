// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// cleanupTime bounds what is tidied up after a failure, when the call's own context may have ended.
const cleanupTime = 10 * time.Second

// creation is one call of Create on its way.
type creation struct {
	*Provider
	target
	spec  provider.InstanceSpec
	image imageSpec
	guest Guest

	volumes      []string // of the pool, as they were listed first
	base, agent  supply
	agentVersion string
	poolPath     string
	release      func()
	mark         Mark
}

// Create makes the instance, or goes on making it, and starts it.
func (p *Provider) Create(ctx context.Context, spec provider.InstanceSpec) (provider.Instance, error) {
	t, unlock, err := p.locked(ctx, spec.InstanceRef)
	if err != nil {
		return provider.Instance{}, err
	}
	defer unlock()
	defer t.begin(t.uid)()
	c := &creation{Provider: p, target: t, spec: spec, release: func() {}}
	defer func() { c.release() }()
	i, err := c.run(ctx)
	if err == nil || provider.KindOf(err) == provider.Permanent {
		p.fetches.leave(t.uid)
	}
	if provider.IsNotFound(err) {
		// What vanished while it was being made is made again, and is no absence to anybody.
		e := *translate(t.name, t.object(), "creating", err)
		e.Kind = provider.Transient
		return provider.Instance{}, &e
	}
	return i, err
}

func (c *creation) run(ctx context.Context) (provider.Instance, error) {
	if err := checkShape(c.spec); err != nil {
		err.Host = c.name
		return provider.Instance{}, err
	}
	i, done, err := c.adopt(ctx)
	if done || err != nil {
		return i, err
	}
	for _, step := range []func(context.Context) error{
		c.checkPlace,
		c.chooseImage,
		c.checkCapable,
		c.checkAddresses,
		c.findSupplies,
		c.checkSize,
		c.takeRoom,
		c.makeOverlay,
		c.checkStillPublished,
		c.makeSeed,
		c.define,
		c.start,
	} {
		if err := step(ctx); err != nil {
			return provider.Instance{}, err
		}
	}
	return c.made(found{DomainInfo{Name: c.domain, State: domainRunning}, c.mark}), nil
}

// made is the instance with the addresses that are known without asking.
func (c *creation) made(f found) provider.Instance {
	c.learn(c.domain, f.Mark)
	i := c.instance(f)
	i.Addresses = c.knownAddresses(c.target, f.Mark)
	return i
}
