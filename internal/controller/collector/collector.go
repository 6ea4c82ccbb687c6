// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
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
	// fanOut is how many entries are swept at once, and how many hosts of each. sweepTime bounds each call to a host.
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
	// Failed: a host could not be swept, or where it is empty the whole entry; tried again.
	Failed(entry, host string, err error)
	// Seen is how an entry is: so many things on its hosts only look like ours, and whether nothing of it is removed until somebody approves.
	Seen(entry string, foreign int, stopped bool)
	// Stopped: nothing of the entry is removed until somebody approves.
	Stopped(entry string, stop v1alpha1.CollectorStop)
	// Resumed: the collector goes on with the entry.
	Resumed(entry, why string)
	// Vanished: the host does not have the instance of a Proxy any more.
	Vanished(entry, host string, p Proxy)
}

// Collector sweeps all hosts of all entries.
type Collector struct {
	// Providers in force, by the name of their entry. It may wait for the first.
	Providers func() map[string]provider.Provider
	// Proxies reads all Proxies of all namespaces from the API server itself, completely or with an error.
	Proxies func(context.Context) (Proxies, error)
	// Ledger keeps what has to outlive the process.
	Ledger Ledger
	Mode   Mode
	// Grace is how long something has to look like a leftover.
	Grace  time.Duration
	Report Reporter
	// Wake has a Proxy looked at: the one of that entry with that UID.
	Wake func(entry, uid string)
	Now  func() time.Time
	Log  *slog.Logger

	seen   sightings
	brakes brakes
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

// Sweep looks at every host that is ready, once. A host that fails harms no other. It returns when nothing goes on any more.
func (c *Collector) Sweep(ctx context.Context) {
	providers := c.Providers()
	inForce := func(entry string) bool { _, ok := providers[entry]; return ok }
	group := errgroup.Group{}
	group.SetLimit(fanOut)
	for entry, p := range providers {
		reclaimer, ok := p.(provider.SpaceReclaimer)
		if !ok {
			continue
		}
		group.Go(func() error {
			s := sweep{Collector: c, entry: entry, provider: p, reclaimer: reclaimer, inForce: inForce}
			if err := s.run(ctx); err != nil {
				c.failed(ctx, place{entry: entry}, err)
			}
			return nil
		})
	}
	_ = group.Wait() // each failure has been reported
}

// failed reports an error, unless the operator ends.
func (c *Collector) failed(ctx context.Context, at place, err error) {
	if ctx.Err() == context.Canceled {
		return
	}
	c.Report.Failed(at.entry, at.host, err)
}
