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

// Leftovers are what the host's pool holds of the entry that looks as if nothing needed it, by its name. It costs one call, and one for each
// unfinished volume.
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
		volumes = append(volumes, p.names.volumeOf(p.entry.Name, l.Object))
	}
	users, err := p.users(ctx, h, volumes)
	if err != nil {
		return nil, err
	}
	results := make([]provider.Reclaimed, 0, len(chosen))
	for i, l := range chosen {
		r := provider.Reclaimed{Leftover: l, Kept: keep(l, now, users[volumes[i]])}
		if r.Kept == "" && !dryRun {
			if err := h.backend.DeleteVolume(ctx, l.Object); err != nil && !IsCode(err, CodeNoVolume) {
				return results, translate(h.name, "volume "+l.Object, "removing it", err)
			}
		}
		r.Removed = r.Kept == ""
		results = append(results, r)
	}
	return results, nil
}

// keep says why a leftover is not removed; empty where it is.
func keep(l provider.Leftover, now []provider.Leftover, user string) string {
	still := slices.ContainsFunc(now, func(n provider.Leftover) bool { return n.Kind == l.Kind && n.Object == l.Object })
	switch {
	case l.Kind == provider.LeftoverUnreadable:
		return "its name cannot be understood"
	case !still:
		return "it is no " + string(l.Kind) + " any more"
	case user != "":
		return "it is in use by " + user
	}
	return ""
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
	return p.names.leftovers(p.entry.Name, volumes, wanted, busy), nil
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

// users says of each of volumes who on the host refers to it: any domain at all, as it is defined and as it runs, or any volume of the pool that it
// backs. A volume's name is nobody else's, so whatever text has it refers to the volume. Whoever vanishes meanwhile refers to nothing.
func (p *Provider) users(ctx context.Context, h *host, volumes []string) (map[string]string, error) {
	users := map[string]string{}
	note := func(user, text string) {
		for _, v := range volumes {
			if users[v] == "" && strings.Contains(text, v) {
				users[v] = user
			}
		}
	}
	there, err := h.backend.Volumes(ctx)
	if err != nil {
		return nil, translate(h.name, "pool "+h.cfg.Pool, "listing the volumes", err)
	}
	for _, name := range there {
		info, err := h.backend.Volume(ctx, name)
		if err != nil && !IsCode(err, CodeNoVolume) {
			return nil, translate(h.name, "volume "+name, "looking at what backs it", err)
		}
		note("volume "+name, info.BackingPath)
	}
	domains, err := h.backend.Domains(ctx)
	if err != nil {
		return nil, translate(h.name, "", "listing the domains", err)
	}
	for _, d := range domains {
		for _, read := range []func(context.Context, string) (string, error){h.backend.DomainXML, h.backend.LiveXML} {
			text, err := read(ctx, d.Name)
			if err != nil && !IsCode(err, CodeNoDomain) {
				return nil, translate(h.name, "domain "+bounded(d.Name), "looking at its disks", err)
			}
			note("domain "+bounded(d.Name), text)
		}
	}
	return users, nil
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
