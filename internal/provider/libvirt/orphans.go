// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// likeOurs are the names that operators of any cluster give.
var likeOurs = regexp.MustCompile(`^` + Prefix + `-[a-z0-9]{6,32}-(?:vm|base|agent)-`)

// ownedBy is the entry in the name of a base, an agent or a marker.
var ownedBy = regexp.MustCompile(`^(?:base|agent)-(.+?)-(?:(?:` + archX86 + `|` + archARM + `)-)?[0-9a-f]{32}-[0-9a-f]{12}\.img`)

// instancesLeft are the entry's instances on a host, the volumes of instances that have no domain, and what only looks like ours. volumes
// were listed before.
func (p *Provider) instancesLeft(ctx context.Context, h *host, volumes []string) ([]provider.Leftover, error) {
	making := h.inTheMaking()
	domains, err := h.backend.Domains(ctx)
	if err != nil {
		return nil, translate(h.name, "", "listing the domains", err)
	}
	var found []provider.Leftover
	there := make(map[string]bool, len(domains))
	for _, d := range domains {
		there[d.Name] = true
		l, ours, err := p.domainLeft(ctx, h, d.Name)
		if err != nil {
			return nil, err
		}
		if ours {
			found = append(found, l)
		}
	}
	for _, v := range volumes {
		if l, ours := p.names.volumeLeft(p.entry.Name, v); ours && !there[p.names.Domain(l.UID)] && !making[l.UID] {
			found = append(found, l)
		}
	}
	return found, nil
}

// domainLeft is what a domain is to the collector; ours is false where it has a name that we would never give.
func (p *Provider) domainLeft(ctx context.Context, h *host, name string) (l provider.Leftover, ours bool, err error) {
	if !likeOurs.MatchString(name) {
		return l, false, nil
	}
	foreign := func(entry, why string) (provider.Leftover, bool, error) {
		return provider.Leftover{Kind: provider.LeftoverForeign, Object: bounded(name), Entry: entry, Why: why}, true, nil
	}
	uid, ok := p.names.InstanceUID(name)
	if !ok || name != p.names.Domain(uid) {
		return foreign("", "no instance of this cluster has that name")
	}
	mark, err := p.noted(ctx, h, name)
	switch {
	case errors.Is(err, ErrNewer):
		return provider.Leftover{Kind: provider.LeftoverNewer, Object: name, Why: "a newer version of the operator wrote its mark"}, true, nil
	case err != nil:
		return l, false, err
	case mark.entry == "":
		return foreign("", "it carries no mark of this cluster's")
	case mark.entry != p.entry.Name:
		return foreign(mark.entry, "its mark names entry "+bounded(mark.entry))
	}
	return provider.Leftover{
		Kind: provider.LeftoverInstance, Object: name, UID: uid, Retained: mark.retained, Why: "no Proxy has its UID; it was made for " + mark.proxy,
	}, true, nil
}

// volumeLeft is what a volume is to the collector, if it has no domain; ours is false where bases are concerned, or it has a name that we would
// never give.
func (n Names) volumeLeft(entry, name string) (l provider.Leftover, ours bool) {
	if !likeOurs.MatchString(name) {
		return l, false
	}
	if uid, ok := n.InstanceUID(name); ok && (name == n.Overlay(uid) || name == n.Seed(uid)) {
		return provider.Leftover{Kind: provider.LeftoverDisk, Object: name, UID: uid, Why: "it has no domain, and no Proxy has its UID"}, true
	}
	_, source := n.sourceOf(entry, name)
	if _, marker := n.markedBy(entry, name); source || marker {
		return l, false
	}
	l = provider.Leftover{Kind: provider.LeftoverForeign, Object: bounded(name), Why: "nothing of this cluster and entry has that name"}
	if rest, ok := n.cutOurs(name); ok {
		if of := ownedBy.FindStringSubmatch(rest); of != nil {
			l.Entry = of[1]
		}
	}
	return l, true
}

// reclaimInstance removes an instance that is ours by its mark, read now, and not retained; or says why it is kept.
func (p *Provider) reclaimInstance(ctx context.Context, h *host, l provider.Leftover, users usage, dryRun bool) (kept string, err error) {
	t, unlock, err := p.locked(ctx, provider.InstanceRef{Host: h.name, UID: l.UID})
	if err != nil {
		return "", err
	}
	defer unlock()
	f, err := p.look(ctx, t)
	var known *provider.Error
	switch {
	case errors.Is(err, errAbsent):
		return "it is gone", nil
	case errors.As(err, &known) && (known.Kind == provider.Conflict || known.Kind == provider.Permanent) && known.Object == t.object():
		return known.Message, nil
	case err != nil:
		return "", err
	case f.Mark.Retained:
		t.learn(t.domain, f.Mark)
		return "its mark says that it is retained", nil
	}
	if kept, err = p.harms(ctx, t, f, users); kept != "" || err != nil || dryRun {
		return kept, err
	}
	volumes, err := p.ownVolumes(ctx, t)
	if err != nil {
		return "", err
	}
	if err := p.removeDomain(ctx, t, f); err != nil {
		return "", err
	}
	return "", p.removeVolumes(ctx, t, volumes)
}

// harms says what of somebody else's would suffer from the removal of an instance; empty where nothing would.
func (p *Provider) harms(ctx context.Context, t target, f found, users usage) (string, error) {
	if kept := users.inUse([]string{p.names.Overlay(t.uid), p.names.Seed(t.uid)}, "domain "+t.domain); kept != "" {
		return kept, nil
	}
	for _, read := range []func(context.Context, string) (string, error){t.backend.DomainXML, t.backend.LiveXML} {
		text, err := read(ctx, t.domain)
		if IsCode(err, CodeNoDomain) {
			return "it is gone", nil
		}
		if err != nil {
			return "", translate(t.name, t.object(), "looking at its disks", err)
		}
		if disk, err := strangeDisk(text, f.Mark.Volumes); err != nil || disk != "" {
			return cause(disk, err), nil
		}
	}
	return "", nil
}

func cause(disk string, err error) string {
	if err != nil {
		return bounded("its definition cannot be read: " + err.Error())
	}
	return "it has a disk that we did not give it: " + bounded(disk)
}

// strangeDisk is a disk of a domain that is none of volumes: somebody attached it, or took a snapshot. Empty where all are.
func strangeDisk(domain string, volumes []string) (string, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(domain); err != nil {
		return "", err
	}
	if d.Devices == nil {
		return "", nil
	}
	for _, disk := range d.Devices.Disks {
		switch {
		case disk.Source == nil: // an empty drive
		case disk.Source.File == nil:
			return fmt.Sprintf("%s, which is no file", targetOf(disk)), nil
		case disk.Source.File.File != "" && !slices.Contains(volumes, path.Base(disk.Source.File.File)):
			return disk.Source.File.File, nil
		}
	}
	return "", nil
}

func targetOf(disk libvirtxml.DomainDisk) string {
	if disk.Target == nil {
		return "a disk"
	}
	return disk.Target.Dev
}

// reclaimDisk removes a volume of an instance that has no domain; or says why it is kept.
func (p *Provider) reclaimDisk(ctx context.Context, h *host, l provider.Leftover, users usage, dryRun bool) (kept string, err error) {
	t, unlock, err := p.locked(ctx, provider.InstanceRef{Host: h.name, UID: l.UID})
	if err != nil {
		return "", err
	}
	defer unlock()
	switch _, err := t.backend.Domain(ctx, t.domain); {
	case err == nil:
		return "it has a domain", nil
	case !IsCode(err, CodeNoDomain):
		return "", translate(t.name, t.object(), "looking for the domain", err)
	}
	if kept = users.inUse([]string{l.Object}, ""); kept != "" || dryRun {
		return kept, nil
	}
	return "", h.removeVolume(ctx, l.Object)
}

// inTheMaking are the UIDs of Creates in flight, in 32 digits.
func (h *host) inTheMaking() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	making := make(map[string]bool, len(h.making))
	for uid := range h.making {
		making[provider.CompactUID(uid)] = true
	}
	return making
}
