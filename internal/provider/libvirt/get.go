// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Get reads the instance.
func (p *Provider) Get(ctx context.Context, ref provider.InstanceRef) (provider.Instance, error) {
	t, err := p.target(ref)
	if err != nil {
		return provider.Instance{}, err
	}
	f, err := p.look(ctx, t)
	if errors.Is(err, errAbsent) {
		t.forget(t.uid)
		return provider.Instance{}, absent(t)
	}
	if err != nil {
		return provider.Instance{}, err
	}
	return p.describe(ctx, t, f)
}

// describe adds the addresses to what was found.
func (p *Provider) describe(ctx context.Context, t target, f found) (provider.Instance, error) {
	t.learn(t.domain, f.Mark)
	i := t.instance(f)
	if i.State != provider.StateRunning && i.State != provider.StatePaused {
		t.forget(t.uid)
		return i, nil
	}
	addresses, err := p.addresses(ctx, t)
	if IsCode(err, CodeNoDomain) {
		t.forget(t.uid)
		return provider.Instance{}, absent(t)
	}
	if err != nil {
		return provider.Instance{}, translate(t.name, t.object(), "reading the addresses", err)
	}
	i.Addresses = addresses
	return i, nil
}

// addresses asks the sources in turn. Where none knows an address, the last known one stands for as long as the guest runs: a
// restarting guest agent is no lost address. It is an error only where no source answered and none is known.
func (p *Provider) addresses(ctx context.Context, t target) ([]netip.Addr, error) {
	mac := p.names.MAC(t.uid)
	answered := false
	var failed error
	for _, source := range addressSources {
		interfaces, err := t.backend.InterfaceAddresses(ctx, t.domain, source)
		var answer *DaemonError
		switch {
		case err == nil:
			answered = true
			if found := addressesOf(mac, interfaces); len(found) > 0 {
				t.remember(t.uid, found)
				return found, nil
			}
		case !asDaemonError(err, &answer) || answer.Code == CodeNoDomain:
			return nil, err
		case failed == nil:
			failed = err
		}
	}
	known := t.lastKnown(t.uid)
	if !answered && known == nil {
		return nil, failed
	}
	return known, nil
}

func asDaemonError(err error, into **DaemonError) bool { return errors.As(err, into) }
