// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// PrePull sees to it that a host holds the images that the entry names for this, with the agent for each, and says whether it does:
// InProgress while one is on its way. An image that the host cannot run is passed over. It returns the first trouble, when all were tried.
func (p *Provider) PrePull(ctx context.Context, hostName string) error {
	h, ok := p.hosts[hostName]
	if !ok {
		return &provider.Error{Kind: provider.Permanent, Host: hostName, Message: fmt.Sprintf("entry %s has no such host", p.entry.Name)}
	}
	var first error
	for _, key := range p.entry.PrePull {
		image, refused := resolveImage(p.entry, provider.Image{Name: key})
		if refused != nil {
			first = worse(first, refused)
			continue
		}
		first = worse(first, p.prePull(ctx, h, image))
	}
	return first
}

func (p *Provider) prePull(ctx context.Context, h *host, i imageSpec) error {
	// Each waits under a name of its own.
	wants := func(what string) *creation {
		return &creation{Provider: p, target: target{host: h, uid: "prepull/" + h.name + "/" + what}, image: i}
	}
	base, agent := wants(i.label), wants("agent "+i.Arch)
	err := base.checkCapable(ctx)
	switch {
	case err == nil:
	case provider.KindOf(err) == provider.Permanent:
		return nil
	default:
		return err
	}
	if p.agent != nil {
		agent.spec.Software = provider.SoftwareAgent
		err = agent.findAgent(ctx)
	}
	return worse(err, base.findBase(ctx))
}

// worse is the first error, but for one in progress, which any other goes before.
func worse(a, b error) error {
	if a == nil || b != nil && provider.KindOf(a) == provider.InProgress && provider.KindOf(b) != provider.InProgress {
		return b
	}
	return a
}
