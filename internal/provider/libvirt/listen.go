// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// pollEvery is how often the domains of a host are read, whoever asks, as the net under the events.
	pollEvery = 10 * time.Second
	// listenAgain and maxListenAgain bound the pause before events are subscribed to again.
	listenAgain    = time.Second
	maxListenAgain = 10 * time.Second
	// steadyListening is for how long events must have been heard for their end to be no sign of trouble.
	steadyListening = time.Minute
)

// listenHost hears what a host's daemon tells, for as long as the provider lives: the subscription ends with the link, and is made again with the next.
func (p *Provider) listenHost(ctx context.Context, h *host) {
	pause := listenAgain
	for {
		begun := time.Now()
		err := h.backend.Events(ctx, func(domain string) { p.heard(h, domain) })
		h.census.hears(false)
		h.memory.doubtAll()
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > steadyListening {
			pause = listenAgain
		}
		p.log.Debug("the host tells nothing for now; it is polled", "host", h.name, "error", err, "again", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, maxListenAgain)
	}
}

// heard takes what the daemon tells: something about a domain, or that anything may have changed.
func (p *Provider) heard(h *host, domain string) {
	if domain == "" {
		h.census.hears(true)
		h.memory.doubtAll()
		p.watch.Tell("")
		return
	}
	if uid, ok := p.instanceOf(domain); ok {
		h.census.touch(domain)
		h.memory.doubt(uid)
		p.consoles.stir(uid)
		p.watch.Tell(uid)
	}
}

// instanceOf is the UID of the Proxy whose instance a domain is, by its name.
func (p *Provider) instanceOf(domain string) (uid string, ok bool) {
	compact, ok := p.names.InstanceUID(domain)
	if !ok || p.names.Domain(compact) != domain {
		return "", false
	}
	id, err := uuid.Parse(compact)
	return id.String(), err == nil
}

// pollHost reads a host's domains at an interval, for as long as the provider lives.
func (p *Provider) pollHost(ctx context.Context, h *host, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last *reading
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		last = p.poll(ctx, h, last)
	}
}

// poll reads the domains once and tells of what nobody told. Then it asks for the addresses of one guest, whose turn it is: an address that changes
// without a word is found in the end, at a cost that does not grow with the number of guests.
func (p *Provider) poll(ctx context.Context, h *host, last *reading) *reading {
	now, err := h.census.refresh(ctx)
	if err != nil {
		return last // the host's own check says so
	}
	for _, domain := range differences(last, now) {
		if uid, ok := p.instanceOf(domain); ok {
			p.watch.Tell(uid)
		}
	}
	h.memory.keepOnly(func(uid string) bool { _, there := now.domains[p.names.Domain(uid)]; return there })
	if uid, ok := h.memory.eldest(); ok {
		p.askAgain(ctx, target{h, uid, p.names.Domain(uid)}, now)
	}
	return now
}

// differences are the domains that two readings do not agree on; none where there is no earlier one.
func differences(last, now *reading) []string {
	if last == nil {
		return nil
	}
	var all []string
	for name, info := range now.domains {
		if last.domains[name] != info {
			all = append(all, name)
		}
	}
	for name := range last.domains {
		if _, there := now.domains[name]; !there {
			all = append(all, name)
		}
	}
	return all
}

// askAgain asks for the addresses of a running guest, and tells of a change.
func (p *Provider) askAgain(ctx context.Context, t target, r *reading) {
	t.memory.askedNow(t.uid)
	info, there := r.domains[t.domain]
	if !there || info.Run == 0 {
		return
	}
	doubts := t.memory.meet(t.uid, info)
	mark, known := t.memory.mark(t.uid)
	if !known {
		return // it is about to be read, and the addresses with it
	}
	before := t.lastKnown(t.uid)
	now, err := p.addresses(ctx, t, doubts, mark)
	if err == nil && !slices.Equal(before, now) {
		p.watch.Tell(t.uid)
	}
}
