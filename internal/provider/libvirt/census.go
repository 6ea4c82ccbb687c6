// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"sync"
	"time"
)

// census is the one reading of a host's domains that all who ask after one of them share, so that its cost does not grow with their number.
//
// A reading is used again only while the daemon tells of changes, and only for a domain that nothing was told of, and nothing was done to, since it
// began. While nobody tells, each question is answered by a reading that begins after it was asked, which those who ask at one time share.
type census struct {
	read   func(context.Context) ([]DomainInfo, error)
	maxAge time.Duration
	ctx    context.Context // ends with the provider

	mu        sync.Mutex
	closed    bool
	readers   sync.WaitGroup
	count     uint64            // of readings that began, and of changes
	changed   map[string]uint64 // the count at a domain's last change
	allAt     uint64            // the count when anything may have changed
	listening bool              // the daemon tells of changes
	last      *reading
	flight    *flight
}

// reading is complete: what is not in it was not there.
type reading struct {
	begun   uint64
	at      time.Time
	domains map[string]DomainInfo
}

// flight is a reading under way.
type flight struct {
	begun  uint64
	done   chan struct{}
	result *reading
	err    error
}

func newCensus(ctx context.Context, read func(context.Context) ([]DomainInfo, error), maxAge time.Duration) *census {
	return &census{ctx: ctx, read: read, maxAge: maxAge, changed: map[string]uint64{}}
}

// touch says that a domain changed, or may have: no reading that began before is used for it.
func (c *census) touch(domain string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.changed[domain] = c.count
}

// hears says whether the daemon tells of changes from now on. What happened before is not known.
func (c *census) hears(listening bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.allAt, c.listening = c.count, listening
}

func (c *census) isListening() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listening
}

// find looks for a domain. Its error says nothing about the domain.
func (c *census) find(ctx context.Context, domain string) (info DomainInfo, there bool, err error) {
	r, err := c.newerThan(ctx, c.needed(domain))
	if err != nil {
		return DomainInfo{}, false, err
	}
	info, there = r.domains[domain]
	return info, there, nil
}

// refresh reads anew.
func (c *census) refresh(ctx context.Context) (*reading, error) {
	c.mu.Lock()
	now := c.count
	c.mu.Unlock()
	return c.newerThan(ctx, now)
}

// needed is the count after which a reading must have begun that speaks for a domain.
func (c *census) needed(domain string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listening || c.last == nil || time.Since(c.last.at) > c.maxAge {
		return c.count
	}
	return max(c.changed[domain], c.allAt)
}

// newerThan returns a reading that began after a count.
func (c *census) newerThan(ctx context.Context, need uint64) (*reading, error) {
	for {
		last, f, err := c.takeOff(need)
		if last != nil || err != nil {
			return last, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.begun > need {
			return f.result, f.err
		}
	}
}

// takeOff returns the last reading where that is new enough, or one under way to wait for.
func (c *census) takeOff(need uint64) (*reading, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.last != nil && c.last.begun > need:
		return c.last, nil, nil
	case c.flight != nil:
		return nil, c.flight, nil
	case c.closed:
		return nil, nil, context.Canceled
	}
	c.count++
	f := &flight{begun: c.count, done: make(chan struct{})}
	c.flight = f
	c.readers.Go(func() { c.fly(f) })
	return nil, f, nil
}

func (c *census) fly(f *flight) {
	ctx, cancel := context.WithTimeout(c.ctx, maxCheckTime)
	defer cancel()
	at := time.Now()
	domains, err := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	c.flight = nil
	if f.err = err; err != nil {
		return
	}
	f.result = &reading{begun: f.begun, at: at, domains: make(map[string]DomainInfo, len(domains))}
	for _, d := range domains {
		f.result.domains[d.Name] = d
	}
	c.last = f.result
	for domain, count := range c.changed {
		if count < f.begun {
			delete(c.changed, domain) // no reading before this one is used any more
		}
	}
}

// close waits for the reading under way; the provider's context has ended.
func (c *census) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.readers.Wait()
}
