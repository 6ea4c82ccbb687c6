// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Mode says what the collector may do.
type Mode string

// Modes.
const (
	// On removes.
	On Mode = "on"
	// DryRun says what it would remove.
	DryRun Mode = "dry-run"
	// Off does nothing.
	Off Mode = "off"
)

// Modes lists every mode.
func Modes() []Mode { return []Mode{On, DryRun, Off} }

const (
	// DefaultGrace is how long something has to look like a leftover. It must be much longer than a Create takes.
	DefaultGrace = time.Hour
	// fanOut is how many hosts are swept at once, and sweepTime bounds each.
	fanOut    = 4
	sweepTime = 2 * time.Minute
	// minPause and maxPause bound the time between two sweeps, which is a part of the grace period.
	minPause  = time.Second
	maxPause  = 10 * time.Minute
	gracePart = 6
)

// Reporter is told what the collector did, or would have done.
type Reporter interface {
	// Collected: a leftover of an entry was removed, or would have been with dryRun.
	Collected(entry, host string, l provider.Leftover, dryRun bool)
	// Kept: a leftover is not removed though its time came; why says why.
	Kept(entry, host string, l provider.Leftover, why string)
	// Failed: a host could not be swept; tried again.
	Failed(entry, host string, err error)
}

// Collector sweeps all hosts of all entries.
type Collector struct {
	// Providers in force, by the name of their entry. It may wait for the first.
	Providers func() map[string]provider.Provider
	Mode      Mode
	// Grace is how long something has to look like a leftover.
	Grace  time.Duration
	Report Reporter
	Now    func() time.Time
	Log    *slog.Logger

	seen sightings
}

// Start sweeps until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	if c.Mode == Off {
		return nil
	}
	ticker := time.NewTicker(min(max(c.Grace/gracePart, minPause), maxPause))
	defer ticker.Stop()
	for {
		c.Sweep(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Sweep looks at every host that is ready, once. A host that fails harms no other.
func (c *Collector) Sweep(ctx context.Context) {
	group := errgroup.Group{}
	group.SetLimit(fanOut)
	for entry, p := range c.Providers() {
		reclaimer, ok := p.(provider.SpaceReclaimer)
		if !ok {
			continue
		}
		for _, h := range p.Hosts() {
			if !h.Ready && h.Reason != provider.HostDegraded { // a full pool is Degraded, and the one that needs it most
				continue
			}
			group.Go(func() error {
				c.sweepHost(ctx, place{entry, h.Name}, reclaimer)
				return nil
			})
		}
	}
	_ = group.Wait() // each host's failure has been reported
}

func (c *Collector) sweepHost(ctx context.Context, at place, p provider.SpaceReclaimer) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	found, err := p.Leftovers(ctx, at.host)
	if err != nil {
		c.failed(ctx, at, err)
		return
	}
	due := c.seen.due(at, found, c.Now(), c.Grace)
	unreadable := func(l provider.Leftover) bool { return l.Kind == provider.LeftoverUnreadable }
	for _, l := range due {
		if unreadable(l) {
			c.Report.Kept(at.entry, at.host, l, l.Why)
			c.seen.again(at, l, c.Now())
		}
	}
	due = slices.DeleteFunc(due, unreadable)
	results, err := p.Reclaim(ctx, at.host, due, c.Mode == DryRun)
	for _, r := range results {
		c.seen.again(at, r.Leftover, c.Now())
		if r.Removed {
			c.Report.Collected(at.entry, at.host, r.Leftover, c.Mode == DryRun)
			continue
		}
		c.Log.Debug("a leftover is kept", "entry", at.entry, "host", at.host, "object", r.Object, "why", r.Kept)
	}
	if err != nil {
		c.failed(ctx, at, err)
	}
}

// failed reports an error, unless the operator ends.
func (c *Collector) failed(ctx context.Context, at place, err error) {
	if ctx.Err() == context.Canceled {
		return
	}
	c.Report.Failed(at.entry, at.host, err)
}
