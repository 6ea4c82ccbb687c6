// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
)

// Events tells of the daemon's domains, over the shared link, until that dies.
func (b *backend) Events(ctx context.Context, notify func(domain string)) error {
	l, err := b.linker.Get(ctx)
	if err != nil {
		return translate(err)
	}
	return translate(l.Events(ctx, notify))
}

// Console hands on what a domain's console says.
func (b *backend) Console(ctx context.Context, name string, sink func([]byte)) error {
	l, err := b.linker.Get(ctx)
	if err != nil {
		return translate(err)
	}
	d, err := link.Call(ctx, l, func(c *golibvirt.Libvirt) (golibvirt.Domain, error) { return c.DomainLookupByName(name) })
	if err != nil {
		return translate(err)
	}
	return translate(l.Console(ctx, d, sink))
}
