// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Places finds hosts of the providers file that turn out to be one place under two names: one libvirt and one pool of it. The file itself
// cannot show that where the addresses differ. All Providers of a file share one.
type Places struct {
	mu sync.Mutex
	// rank is the order of the file: of two names, the first keeps the place.
	rank map[hostID]int
	seen map[hostID]place
}

// hostID is a host by its names in the providers file.
type hostID struct{ entry, host string }

// place is a pool of a machine. Both UUIDs count: machines that were cloned, and boards whose maker took no care, share the machine's.
type place struct{ machine, pool string }

// NewPlaces knows the order of all hosts of a providers file.
func NewPlaces(entries []config.Entry) *Places {
	p := &Places{seen: map[hostID]place{}}
	p.Reorder(entries)
	return p
}

// Reorder takes the order of another providers file, and forgets the hosts that it does not have.
func (p *Places) Reorder(entries []config.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rank = map[hostID]int{}
	for _, e := range entries {
		for _, h := range e.Hosts {
			p.rank[hostID{e.Name, h.Name}] = len(p.rank)
		}
	}
	maps.DeleteFunc(p.seen, func(id hostID, _ place) bool { _, there := p.rank[id]; return !there })
}

// found notes where a host is.
func (p *Places) found(id hostID, at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[id] = at
}

// first is the host that has the place of this one and comes before it in the file, and the place.
func (p *Places) first(id hostID) (first hostID, at place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at = p.seen[id]
	if at.machine == "" || at.pool == "" {
		return hostID{}, place{}, false
	}
	first = id
	for other, there := range p.seen {
		if there == at && p.rank[other] < p.rank[first] {
			first = other
		}
	}
	return first, at, first != id
}

// duplicate says, as Capacity, that a host is another one's place, so that nothing new goes there; nil where it is not.
func (p *Provider) duplicate(h *host) error {
	first, at, ok := p.places.first(hostID{p.entry.Name, h.name})
	if !ok {
		return nil
	}
	other := "host " + first.host
	if first.entry != p.entry.Name {
		other += " of entry " + first.entry
	}
	return &provider.Error{
		Kind: provider.Capacity, Reason: provider.HostDuplicate, Host: h.name,
		Message: fmt.Sprintf("this is %s under another name: the same libvirt (host UUID %s) and the same pool %s (UUID %s); instances here go on, and no new one is made",
			other, bounded(at.machine), h.cfg.Pool, bounded(at.pool)),
		Next: "take one of the two out of the providers file, or give one of them another pool; of two machines one was cloned: give it a host_uuid of its own in libvirtd.conf",
	}
}

// checkPlace makes nothing new in a place that another host of the providers file has.
func (c *creation) checkPlace(context.Context) error { return c.duplicate(c.host) }
