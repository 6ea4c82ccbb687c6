// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Retain marks the instance as retained; it is done again without harm.
func (p *Provider) Retain(ctx context.Context, ref provider.InstanceRef) error {
	t, unlock, err := p.locked(ctx, ref)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := p.look(ctx, t)
	if errors.Is(err, errAbsent) {
		return absent(t)
	}
	if err != nil || f.Mark.Retained {
		return err
	}
	f.Mark.Retained = true
	element, err := f.Mark.Bare()
	if err != nil {
		return translate(t.name, t.object(), "writing the mark", err)
	}
	if err := t.backend.SetMetadata(ctx, t.domain, MarkNamespace, markKey, element); err != nil {
		return translate(t.name, t.object(), "writing the mark", err)
	}
	t.learn(t.domain, f.Mark)
	return nil
}
