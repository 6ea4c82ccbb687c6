// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// anyCluster stands where no name of an instance is made.
const anyCluster = "doctor"

// Examine looks at one host of an entry, and at the entry's images, for a person who asks what is wrong. It reports each finding as soon as it is
// there; what cannot be looked at, as something before it failed, has none. It changes nothing. The Cluster of o does not matter.
func Examine(ctx context.Context, o Options, host string, report func(provider.Finding)) error {
	o.Cluster = anyCluster
	o.Entry.Hosts = slices.DeleteFunc(slices.Clone(o.Entry.Hosts), func(h config.Host) bool { return h.Name != host })
	p, err := assemble(o)
	if err != nil {
		return err
	}
	defer p.Close()
	h, ok := p.hosts[host]
	if !ok {
		return fmt.Errorf("entry %s has no host %s", o.Entry.Name, host)
	}
	if p.examineLink(ctx, h, report) {
		p.examinePlaces(ctx, h, report)
	}
	p.examineImages(ctx, report)
	return nil
}

// examineLink says how far libvirt can be reached. It returns whether the daemon answers.
func (p *Provider) examineLink(ctx context.Context, h *host, report func(provider.Finding)) bool {
	info, err := h.backend.Host(ctx)
	hops := []provider.Finding{
		{Topic: provider.TopicConnection, Detail: h.cfg.Address + " answers"},
		{Topic: provider.TopicKeys, Detail: "the host has the key that is pinned, and lets user " + h.cfg.User + " in"},
		{Topic: provider.TopicSocket, Detail: strings.TrimSpace(cmp.Or(h.cfg.Socket, "libvirt's socket") + " " + info.Via)},
		{Topic: provider.TopicLibvirt, Detail: versionText(info.LibvirtVersion) + " on " + bounded(info.Hostname)},
	}
	failed := failedHop(err)
	if h.cfg.Local {
		hops = hops[2:]
		if failed != provider.TopicLibvirt {
			failed = provider.TopicSocket
		}
	}
	for _, hop := range hops {
		if err != nil && hop.Topic == failed {
			report(provider.Finding{Topic: failed, Err: translate(h.name, "", "looking at the host", err)})
			return false
		}
		if err != nil {
			hop.Detail = "" // nothing more is known
		}
		report(hop)
	}
	return true
}

// failedHop is the first thing on the way to libvirt that is not as it should be.
func failedHop(err error) string {
	var answer *DaemonError
	var hostErr *HostError
	switch {
	case errors.As(err, &answer):
		return provider.TopicLibvirt
	case errors.As(err, &hostErr) && hostErr.Reason == provider.HostUnauthorized:
		return provider.TopicKeys
	case errors.As(err, &hostErr) && hostErr.Reason == provider.HostIncapable:
		return provider.TopicSocket
	}
	return provider.TopicConnection
}

// examinePlaces says what guests would run on, and where their disks and their network are.
func (p *Provider) examinePlaces(ctx context.Context, h *host, report func(provider.Finding)) {
	for _, n := range p.needs() {
		guest, lacks, err := h.match(ctx, n)
		report(h.finding(provider.TopicCapabilities, fmt.Sprintf("guests of %s run by %s", n, accelerator(guest)), lacks, err))
	}
	pool, lacks, err := h.poolMissing(ctx)
	report(h.finding(provider.TopicPool, h.cfg.Pool+" in "+bounded(pool.Path), lacks, err))
	if len(lacks) == 0 && err == nil {
		err = p.checkRoom(h, pool)
		report(h.finding(provider.TopicSpace, size(p.beyondReserve(pool))+" beyond the reserve, as libvirt last saw it", nil, err))
	}
	lacks, err = h.networkMissing(ctx)
	report(h.finding(provider.TopicNetwork, cmp.Or(h.cfg.Network, h.cfg.Bridge), lacks, err))
}

// needs are what the entry's images ask of a host, each once.
func (p *Provider) needs() (all []need) {
	for _, key := range p.entry.ImageNames() {
		n := p.needOf(p.entry.Images[key])
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

func (n need) String() string {
	if n.EFI {
		return n.Arch + " with EFI"
	}
	return n.Arch
}

func accelerator(g Guest) string {
	if g.VirtType == virtTCG {
		return "emulation, which is slow"
	}
	return "KVM"
}

// examineImages opens each image, as the operator would, and reads none.
func (p *Provider) examineImages(ctx context.Context, report func(provider.Finding)) {
	for _, key := range p.entry.ImageNames() {
		spec, refused := resolveImage(p.entry, provider.Image{Name: key})
		if refused != nil {
			report(provider.Finding{Topic: provider.TopicImage, Err: refused})
			continue
		}
		body, length, err := p.opener(spec).Open(ctx, spec.source())
		if err == nil {
			err = body.Close()
		}
		if err != nil {
			err = translate("", "image "+key, "opening it", err)
		}
		report(provider.Finding{Topic: provider.TopicImage, Detail: key + " can be fetched: " + size(length), Err: err})
	}
}

// finding is about one thing that a host may lack.
func (h *host) finding(topic, detail string, lacks []string, err error) provider.Finding {
	if len(lacks) > 0 {
		err = incapable(h.name, lacks)
	}
	return provider.Finding{Topic: topic, Detail: detail, Err: err}
}
