// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// maxCheckTime bounds one look at a host.
const maxCheckTime = 15 * time.Second

// Hosts says what is known of each host, in the order of the providers file.
func (p *Provider) Hosts() []provider.HostState {
	states := make([]provider.HostState, 0, len(p.hosts))
	for _, name := range p.entry.HostNames() {
		states = append(states, p.hosts[name].snapshot())
	}
	return states
}

// watchHost looks at a host now and at every interval, until ctx ends.
func (p *Provider) watchHost(ctx context.Context, h *host, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		p.checkHost(ctx, h)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Provider) checkHost(ctx context.Context, h *host) {
	round, cancel := context.WithTimeout(ctx, maxCheckTime)
	defer cancel()
	state, err := p.inspect(round, h)
	if ctx.Err() != nil {
		return
	}
	state.Name, state.Unschedulable = h.name, !h.cfg.IsSchedulable()
	state.Ready, state.Reason, state.Message = err == nil, provider.HostReady, "takes instances"
	if err != nil {
		state.Reason, state.Message = hostReason(err), err.Error()
	}
	switch ready, reason := h.update(state); {
	case ready:
		p.watch.Tell("")
	case reason:
		p.watch.Tell("host/" + h.name) // nothing to a Proxy
	}
}

// versionText is libvirt's number of a version as people write it.
func versionText(n uint64) string {
	return fmt.Sprintf("%d.%d.%d", n/1_000_000, n/1_000%1_000, n%1_000)
}

// hostReason is the one word for why a host is not ready.
func hostReason(err error) string {
	var answer *DaemonError
	var e *provider.Error
	if errors.As(err, &e) {
		switch e.Reason {
		case provider.HostUnreachable, provider.HostTimeout, provider.HostUnauthorized, provider.HostIncapable,
			provider.HostDegraded, provider.HostDuplicate:
			return e.Reason
		}
	}
	if errors.As(err, &answer) {
		return provider.HostDegraded
	}
	return provider.HostUnreachable
}

// inspect reads what placement needs to know, and keeps what was last known of the rest. The pool is not refreshed: a refresh that fails would stop it.
func (p *Provider) inspect(ctx context.Context, h *host) (provider.HostState, error) {
	last := h.snapshot()
	s := provider.HostState{
		HostName: last.HostName, LibvirtVersion: last.LibvirtVersion, Via: last.Via, Instances: last.Instances,
		PoolAvailableGiB: last.PoolAvailableGiB, PoolSeen: last.PoolSeen, CPUs: last.CPUs, MaxVCPUs: h.cfg.MaxVCPUs,
	}
	info, err := h.backend.Host(ctx)
	if err != nil {
		return s, translate(h.name, "", "looking at the host", err)
	}
	s.CPUs = info.CPUs
	s.HostName, s.LibvirtVersion = bounded(info.Hostname), versionText(info.LibvirtVersion)
	if !h.cfg.Local {
		s.Via = info.Via
	}
	count, err := p.countInstances(ctx, h)
	if err != nil {
		return s, err
	}
	s.Instances = count
	if _, err := p.capable(ctx, h, need{Arch: p.usualArch(info.Arch), Emulation: p.entry.AllowEmulation}); err != nil {
		return s, err
	}
	if s.Lacks, err = p.lacks(ctx, h, info.Arch); err != nil {
		return s, translate(h.name, "", "reading the capabilities", err)
	}
	pool, err := h.backend.Pool(ctx, false)
	if err != nil {
		return s, translate(h.name, "pool "+h.cfg.Pool, "looking at the pool", err)
	}
	p.places.found(hostID{p.entry.Name, h.name}, place{info.UUID, pool.UUID})
	s.FreeMemoryMiB, s.RoomKnown = info.FreeMemoryMiB, true
	s.PoolAvailableGiB, s.PoolSeen = p.beyondReserve(pool)/gib, time.Now()
	if err := p.duplicate(h); err != nil {
		return s, err
	}
	return s, p.checkRoom(h, pool)
}

// beyondReserve is the room in a pool that instances may take, in bytes.
func (p *Provider) beyondReserve(pool PoolInfo) int64 { return max(pool.Available-p.reserveBytes(), 0) }

// checkRoom says, as Capacity, that a pool has no room for any guest; nil where it has.
func (p *Provider) checkRoom(h *host, pool PoolInfo) error {
	lacking := roomFor(firstBoot, pool.Available, p.reserveBytes(), 0)
	if lacking == nil {
		return nil
	}
	return &provider.Error{
		Kind: provider.Capacity, Reason: provider.HostDegraded, Host: h.name, Object: "pool " + h.cfg.Pool, Message: lacking.message(h.cfg.Pool),
		Next: "make room in the pool",
	}
}

// lacks says of the entry's images, by their keys, what a host of that architecture lacks to run them; the empty key is for images that Proxies bring.
func (p *Provider) lacks(ctx context.Context, h *host, own string) (map[string]string, error) {
	needs := map[string]need{}
	for key, image := range p.entry.Images {
		needs[key] = p.needOf(image)
	}
	if len(p.entry.AllowURLImages) > 0 {
		needs[""] = p.needOf(config.Image{})
	}
	lacks := map[string]string{}
	for key, n := range needs {
		o := offer{Arch: own}
		if n.Arch == own || n.Emulation {
			var err error
			if o, err = h.offer(ctx, n.Arch); err != nil {
				return nil, err
			}
		}
		if _, missing := match(n, o); len(missing) > 0 {
			lacks[key] = strings.Join(missing, "; and ")
		}
	}
	return lacks, nil
}

// needOf an image.
func (p *Provider) needOf(image config.Image) need {
	return need{Arch: archOr(image.Arch), EFI: image.Firmware == config.FirmwareEFI, Emulation: p.entry.AllowEmulation}
}

// usualArch is the host's own architecture where an image of the entry has it, or else that of any image: a host is ready when it can
// run at least one.
func (p *Provider) usualArch(own string) string {
	for _, key := range p.entry.ImageNames() {
		if p.entry.Images[key].Arch == own {
			return own
		}
	}
	for _, key := range p.entry.ImageNames() {
		return archOr(p.entry.Images[key].Arch)
	}
	return own
}

func archOr(arch string) string {
	if arch == "" {
		return archX86
	}
	return arch
}

// countInstances counts the entry's domains, and the Creates that have no domain yet. Marks are read once per domain.
func (p *Provider) countInstances(ctx context.Context, h *host) (int, error) {
	domains, err := h.backend.Domains(ctx)
	if err != nil {
		return 0, translate(h.name, "", "listing the domains", err)
	}
	count := 0
	there := map[string]bool{}
	for _, d := range domains {
		uid, ok := p.names.InstanceUID(d.Name)
		if !ok || d.Name != p.names.Domain(uid) {
			continue
		}
		mark, err := p.noted(ctx, h, d.Name)
		if err != nil && !errors.Is(err, ErrNewer) {
			return 0, fmt.Errorf("counting the instances: %w", err)
		}
		there[d.Name] = true
		if mark.entry == p.entry.Name {
			count++
		}
	}
	return count + h.settle(p.names, there), nil
}

// noted is what the mark of a domain says, as far as it is of this cluster; zero where it has none. The error wraps ErrNewer where a newer version of
// the operator wrote it.
func (p *Provider) noted(ctx context.Context, h *host, domain string) (noted, error) {
	h.mu.Lock()
	known, ok := h.marks[domain]
	h.mu.Unlock()
	if ok {
		return known, nil
	}
	mark, ok, err := p.readMark(ctx, h, domain)
	if err != nil || !ok || mark.Cluster != p.names.cluster || p.names.Domain(mark.UID) != domain {
		return noted{}, err
	}
	return h.learn(domain, mark), nil
}

// settle forgets the domains that are gone, and counts the Creates in flight that have none.
func (h *host) settle(names Names, there map[string]bool) (making int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for domain := range h.marks {
		if !there[domain] {
			delete(h.marks, domain)
		}
	}
	for uid := range h.making {
		if !there[names.Domain(uid)] {
			making++
		}
	}
	return making
}
