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
		c := &creation{Provider: p, target: target{host: h, uid: "prepull/" + hostName}, image: image}
		err := c.checkCapable(ctx)
		if err != nil && provider.KindOf(err) == provider.Permanent {
			continue
		}
		if p.agent != nil && err == nil {
			c.spec.Software = provider.SoftwareAgent
			err = c.findAgent(ctx)
		}
		if err == nil || provider.KindOf(err) == provider.InProgress {
			err = worse(err, c.findBase(ctx))
		}
		first = worse(first, err)
	}
	return first
}

// worse is the first error, but for one in progress, which any other goes before.
func worse(a, b error) error {
	if a == nil || b != nil && provider.KindOf(a) == provider.InProgress && provider.KindOf(b) != provider.InProgress {
		return b
	}
	return a
}
