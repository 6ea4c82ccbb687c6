// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Get reads the instance. Its state comes from the host's shared reading; that it is gone is asked of the host itself.
func (p *Provider) Get(ctx context.Context, ref provider.InstanceRef) (provider.Instance, error) {
	t, err := p.target(ref)
	if err != nil {
		return provider.Instance{}, err
	}
	info, there, err := t.census.find(ctx, t.domain)
	if err != nil {
		return provider.Instance{}, translate(t.name, t.object(), "looking for the domain", err)
	}
	f := found{DomainInfo: info}
	if there {
		f.Mark, err = p.markOf(ctx, t, info)
	} else {
		f, err = p.look(ctx, t)
	}
	if errors.Is(err, errAbsent) {
		t.memory.forget(t.uid)
		return provider.Instance{}, absent(t)
	}
	if err != nil {
		return provider.Instance{}, err
	}
	return p.describe(ctx, t, f)
}

// markOf is the mark of a domain of ours, as it was read since the domain started and since anything was told of it.
func (p *Provider) markOf(ctx context.Context, t target, info DomainInfo) (Mark, error) {
	doubts := t.memory.meet(t.uid, info)
	if mark, known := t.memory.mark(t.uid); known && t.census.isListening() {
		return mark, nil
	}
	mark, err := p.identify(ctx, t, info)
	if err == nil {
		t.memory.keepMark(t.uid, doubts, mark)
	}
	return mark, err
}

// describe adds the addresses to what was found.
func (p *Provider) describe(ctx context.Context, t target, f found) (provider.Instance, error) {
	t.learn(t.domain, f.Mark)
	i := t.instance(f)
	if i.State != provider.StateRunning && i.State != provider.StatePaused {
		t.memory.stopped(t.uid)
		return i, nil
	}
	addresses, err := p.addressesNow(ctx, t, f)
	if IsCode(err, CodeNoDomain) {
		t.memory.forget(t.uid)
		return provider.Instance{}, absent(t)
	}
	if err != nil {
		return provider.Instance{}, translate(t.name, t.object(), "reading the addresses", err)
	}
	i.Addresses = addresses
	return i, nil
}

// addressesNow are the addresses that were found in this run, where nothing gives reason to ask again, or else what the sources say.
func (p *Provider) addressesNow(ctx context.Context, t target, f found) ([]netip.Addr, error) {
	doubts := t.memory.meet(t.uid, f.DomainInfo)
	if known, sure := t.memory.known(t.uid); sure && len(known) > 0 && t.census.isListening() {
		return known, nil
	}
	return p.addresses(ctx, t, doubts, f.Mark)
}

// addresses asks the sources in turn. Where none knows an address, the last known one stands for as long as the guest runs: a
// restarting guest agent is no lost address. It is an error only where no source answered and none is known.
func (p *Provider) addresses(ctx context.Context, t target, doubts uint64, mark Mark) ([]netip.Addr, error) {
	mac := p.names.macOr(mark.NIC.MAC, t.uid)
	answered := false
	var failed error
	for _, source := range addressSources {
		interfaces, err := t.backend.InterfaceAddresses(ctx, t.domain, source)
		var answer *DaemonError
		switch {
		case err == nil:
			answered = true
			if found := addressesOf(mac, interfaces); len(found) > 0 {
				t.memory.keepAddresses(t.uid, doubts, found)
				return found, nil
			}
		case !asDaemonError(err, &answer) || answer.Code == CodeNoDomain:
			return nil, err
		case failed == nil:
			failed = err
		}
	}
	known := p.knownAddresses(t, mark)
	if !answered && known == nil {
		return nil, failed
	}
	return known, nil
}

// DoubtAddresses has the addresses of an instance asked for again.
func (p *Provider) DoubtAddresses(ref provider.InstanceRef) {
	if t, err := p.target(ref); err == nil { // what is no instance has no addresses
		t.memory.doubt(t.uid)
	}
}

func asDaemonError(err error, into **DaemonError) bool { return errors.As(err, into) }
