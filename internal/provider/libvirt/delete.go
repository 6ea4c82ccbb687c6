// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"slices"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Delete removes what is left of the instance, and returns NotFound once nothing is.
func (p *Provider) Delete(ctx context.Context, ref provider.InstanceRef) error {
	t, unlock, err := p.locked(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	p.fetches.leave(t.uid)
	f, err := p.look(ctx, t)
	if err != nil && !errors.Is(err, errAbsent) {
		return err
	}
	there := err == nil
	volumes, err := p.ownVolumes(ctx, t)
	if err != nil {
		return err
	}
	if !there && len(volumes) == 0 {
		return absent(t)
	}
	if there {
		if err := p.removeDomain(ctx, t, f); err != nil {
			return err
		}
	}
	return p.removeVolumes(ctx, t, volumes)
}

// ownVolumes are the volumes of t that exist. They are listed before the domain goes: while it is there, its mark says whose they are.
func (p *Provider) ownVolumes(ctx context.Context, t target) ([]string, error) {
	all, err := t.backend.Volumes(ctx)
	if err != nil {
		return nil, translate(t.name, "pool "+t.cfg.Pool, "listing the volumes", err)
	}
	var own []string
	for _, name := range []string{p.names.Overlay(t.uid), p.names.Seed(t.uid)} {
		if slices.Contains(all, name) {
			own = append(own, name)
		}
	}
	return own, nil
}

// removeDomain ends the guest and removes its definition. It has to be off first: a running one would live on without a definition.
func (p *Provider) removeDomain(ctx context.Context, t target, f found) error {
	t.memory.forget(t.uid)
	p.consoles.drop(t.uid)
	if f.State != domainShutoff {
		err := t.backend.Destroy(ctx, t.domain)
		if err != nil && !IsCode(err, CodeOperationInvalid) && !IsCode(err, CodeNoDomain) {
			return translate(t.name, t.object(), "stopping the guest", err)
		}
	}
	if !f.Persistent {
		return nil // gone with its guest
	}
	if err := t.backend.Undefine(ctx, t.domain); err != nil && !IsCode(err, CodeNoDomain) {
		return translate(t.name, t.object(), "removing the definition", err)
	}
	return nil
}

func (p *Provider) removeVolumes(ctx context.Context, t target, volumes []string) error {
	for _, name := range volumes {
		if err := t.backend.DeleteVolume(ctx, name); err != nil && !IsCode(err, CodeNoVolume) {
			return translate(t.name, "volume "+name, "deleting it", err)
		}
	}
	return nil
}
