// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// keepUsed is how long a source counts as wanted after a Create looked for it: images that Proxies bring are in no catalogue.
const keepUsed = time.Hour

// Leftovers are what the host holds of the entry that looks as if nothing needed it, by names and marks: complete, or an error. It costs two
// calls, one for each unfinished volume, and one for each domain whose mark was not read yet.
func (p *Provider) Leftovers(ctx context.Context, hostName string) ([]provider.Leftover, error) {
	h, err := p.hostNamed(hostName)
	if err != nil {
		return nil, err
	}
	found, err := p.leftovers(ctx, h)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].Kind != provider.LeftoverUnfinished {
			continue
		}
		info, err := h.backend.Volume(ctx, found[i].Object)
		var answer *DaemonError
		if err != nil && !asDaemonError(err, &answer) {
			return nil, translate(h.name, "volume "+found[i].Object, "looking at it", err)
		}
		found[i].Bytes = info.Allocation
	}
	return found, nil
}

// Reclaim looks at everything again, and removes those of chosen that are leftovers still, and that no domain and no backing chain refers
// to. Of an unwanted volume only the marker goes: a Create that has found the volume looks at the marker again once its overlay refers
// to it, so that one of the two sees the other, if a good while passes before the volume goes.
func (p *Provider) Reclaim(ctx context.Context, hostName string, chosen []provider.Leftover, dryRun bool) ([]provider.Reclaimed, error) {
	h, err := p.hostNamed(hostName)
	if err != nil || len(chosen) == 0 {
		return nil, err
	}
	if _, err := h.refreshPool(ctx, h.backend); err != nil { // files that others put there
		return nil, translate(h.name, "pool "+h.cfg.Pool, "looking for what is there", err)
	}
	now, err := p.leftovers(ctx, h)
	if err != nil {
		return nil, err
	}
	var volumes []string
	for _, l := range chosen {
		volumes = append(volumes, p.volumesOf(l)...)
	}
	users, err := p.users(ctx, h, volumes)
	if err != nil {
		return nil, err
	}
	results := make([]provider.Reclaimed, 0, len(chosen))
	for _, l := range chosen {
		r := provider.Reclaimed{Leftover: l, Kept: keep(l, now)}
		r.Moot = r.Kept != ""
		if !r.Moot {
			if r.Kept, err = p.reclaim(ctx, h, l, users, dryRun); err != nil {
				return results, err
			}
		}
		r.Removed = r.Kept == ""
		results = append(results, r)
	}
	return results, nil
}

// keep says why something is no leftover that may be removed; empty where it is one.
func keep(l provider.Leftover, now []provider.Leftover) string {
	still := slices.ContainsFunc(now, func(n provider.Leftover) bool { return n.Kind == l.Kind && n.Object == l.Object })
	switch l.Kind {
	case provider.LeftoverUnreadable:
		return "its name cannot be understood"
	case provider.LeftoverNewer:
		return "a newer version of the operator made it"
	case provider.LeftoverForeign:
		return "it is not ours"
	case provider.LeftoverUnfinished, provider.LeftoverUnwanted, provider.LeftoverMarker, provider.LeftoverInstance, provider.LeftoverDisk:
	}
	if !still {
		return "it is no " + string(l.Kind) + " any more"
	}
	return ""
}

// volumesOf are the volumes that matter to a leftover.
func (p *Provider) volumesOf(l provider.Leftover) []string {
	if l.Kind == provider.LeftoverInstance {
		return []string{p.names.Overlay(l.UID), p.names.Seed(l.UID)}
	}
	return []string{p.names.volumeOf(p.entry.Name, l.Object)}
}

// reclaim removes one leftover, or says why it is kept.
func (p *Provider) reclaim(ctx context.Context, h *host, l provider.Leftover, users usage, dryRun bool) (kept string, err error) {
	switch l.Kind {
	case provider.LeftoverInstance:
		return p.reclaimInstance(ctx, h, l, users, dryRun)
	case provider.LeftoverDisk:
		return p.reclaimDisk(ctx, h, l, users, dryRun)
	default:
		kept = users.inUse(p.volumesOf(l), "")
		if kept == "" && !dryRun {
			err = h.removeVolume(ctx, l.Object)
		}
		return kept, err
	}
}

func (h *host) removeVolume(ctx context.Context, name string) error {
	if err := h.backend.DeleteVolume(ctx, name); err != nil && !IsCode(err, CodeNoVolume) {
		return translate(h.name, "volume "+name, "removing it", err)
	}
	return nil
}

func (p *Provider) hostNamed(name string) (*host, error) {
	h, ok := p.hosts[name]
	if !ok {
		return nil, &provider.Error{Kind: provider.Permanent, Host: name, Message: fmt.Sprintf("entry %s has no such host", p.entry.Name)}
	}
	return h, nil
}

func (p *Provider) leftovers(ctx context.Context, h *host) ([]provider.Leftover, error) {
	wanted := p.wanted(h) // before the volumes are listed: what is published from now on is wanted
	busy := h.beingWritten()
	volumes, err := h.backend.Volumes(ctx)
	if err != nil {
		return nil, translate(h.name, "pool "+h.cfg.Pool, "listing the volumes", err)
	}
	instances, err := p.instancesLeft(ctx, h, volumes)
	if err != nil {
		return nil, err
	}
	return append(instances, p.names.leftovers(p.entry.Name, volumes, wanted, busy)...), nil
}

// wanted says whether a source is in the catalogue, is an agent of this operator, or was looked for lately. Where the agents cannot be read,
// every agent is wanted.
func (p *Provider) wanted(h *host) func(Source) bool {
	stems := map[string]bool{}
	for _, image := range p.entry.Images {
		source := imageSpec{Image: image}.source()
		stems[p.names.Base(p.entry.Name, source.URL, source.Pin()).stem] = true
	}
	everyAgent := p.agent == nil
	for _, arch := range []string{archX86, archARM} {
		if everyAgent {
			break
		}
		file, err := p.agent(arch)
		everyAgent = err != nil
		stems[p.names.Agent(p.entry.Name, arch, file.SHA256).stem] = true
	}
	return func(s Source) bool {
		return stems[s.stem] || h.usedLately(s) || everyAgent && strings.HasPrefix(s.stem, p.names.agents(p.entry.Name))
	}
}

// writes notes that a volume is being written until done.
func (h *host) writes(volume string) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writing[volume] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.writing, volume)
	}
}

// beingWritten says of a volume whether it was being written when asked for.
func (h *host) beingWritten() func(volume string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	busy := make(map[string]bool, len(h.writing))
	for v := range h.writing {
		busy[v] = true
	}
	return func(volume string) bool { return busy[volume] }
}

// use notes that a source was looked for.
func (h *host) use(s Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for stem, at := range h.used {
		if time.Since(at) > keepUsed {
			delete(h.used, stem)
		}
	}
	h.used[s.stem] = time.Now()
}

func (h *host) usedLately(s Source) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.used[s.stem]
	return ok && time.Since(at) <= keepUsed
}
