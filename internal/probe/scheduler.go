// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// DefaultWorkers probe at once.
const DefaultWorkers = 64

// jitterPart of an interval is the most that a probe comes early or late, so that proxies made together are not probed together.
const jitterPart = 10

// Func sends one probe.
type Func func(ctx context.Context, t Target, l Limits) Verdict

// Scheduler probes many proxies, each at its own pace, a bounded number at once.
type Scheduler struct {
	probe   Func
	workers int
	notify  func(key string)

	mu     sync.Mutex
	items  map[string]*item
	queue  queue
	fleet  fleet
	change chan struct{}
}

// item is one proxy. Its fields are guarded by the scheduler's mutex.
type item struct {
	key    string
	target Target
	policy Policy
	health Health
	since  time.Time
	due    time.Time
	// index in the queue, or notQueued while a worker probes it.
	index int
	// again: something changed while a worker probed it.
	again bool
	// failing: the last verdict speaks against it.
	failing bool
}

const notQueued = -1

// NewScheduler makes a scheduler. notify is called with a proxy's key when its health has something new to say; it must not block.
func NewScheduler(probe Func, workers int, notify func(key string)) *Scheduler {
	return &Scheduler{probe: probe, workers: workers, notify: notify, items: map[string]*item{}, change: make(chan struct{}, 1)}
}

// Watch probes a proxy from now on, or goes on with what changed: another address starts anew, other credentials or reflectors are
// probed at once, the rest leaves the pace alone. known is what is remembered of a proxy that is not watched yet.
func (s *Scheduler) Watch(key string, t Target, p Policy, known Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	it, ok := s.items[key]
	if ok {
		s.fleet.count(it, -1)
	}
	switch {
	case !ok:
		it = &item{key: key, health: known, since: now, due: now, index: notQueued}
		s.items[key] = it
		heap.Push(&s.queue, it)
	case !it.target.sameProxy(t):
		it.health, it.since, it.failing = Health{}, now, false
		s.hasten(it, now)
	case !it.target.equal(t):
		s.hasten(it, now)
	}
	it.target, it.policy = t, p
	s.fleet.count(it, +1)
	s.wake()
}

// hasten makes a proxy due now, also one that a worker is at.
func (s *Scheduler) hasten(it *item, now time.Time) {
	it.due = now
	if it.index == notQueued {
		it.again = true
		return
	}
	heap.Fix(&s.queue, it.index)
}

// Forget ends the probing of a proxy.
func (s *Scheduler) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[key]
	if !ok {
		return
	}
	delete(s.items, key)
	s.fleet.count(it, -1)
	if it.index != notQueued {
		heap.Remove(&s.queue, it.index)
	}
}

// Health of a proxy that is watched.
func (s *Scheduler) Health(key string) (Health, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[key]
	if !ok {
		return Health{}, false
	}
	return it.health, true
}

// Start probes until ctx ends, and returns when every worker has ended.
func (s *Scheduler) Start(ctx context.Context) error {
	work := make(chan *item)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			for it := range work {
				s.run(ctx, it)
			}
		})
	}
	s.dispatch(ctx, work)
	close(work)
	workers.Wait()
	return nil
}

func (s *Scheduler) dispatch(ctx context.Context, work chan<- *item) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		it, wait := s.next()
		if it != nil {
			select {
			case work <- it:
				continue
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.change:
		case <-ctx.Done():
			return
		}
	}
}

// next takes what is due out of the queue, or says how long nothing will be.
func (s *Scheduler) next() (*item, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until(s.queue[0].due); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.queue).(*item), 0
}

func (s *Scheduler) run(ctx context.Context, it *item) {
	s.mu.Lock()
	target, limits := it.target, Limits{Total: it.policy.Timeout, Dial: it.policy.Timeout}
	if !it.health.Proven {
		limits.Dial = min(limits.Dial, bootDial)
	}
	s.mu.Unlock()
	verdict := s.probe(ctx, target, limits)
	if ctx.Err() == nil && s.record(it, verdict) {
		s.notify(it.key)
	}
}

// record takes a verdict in, queues the proxy again, and says whether there is something to tell.
func (s *Scheduler) record(it *item, v Verdict) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items[it.key] != it {
		return false
	}
	now := time.Now()
	before := it.health
	if it.again {
		it.again, it.due = false, now
	} else {
		it.health = before.Next(s.inFleet(it, v, now), it.policy)
		s.fleet.count(it, +1)
		it.due = now.Add(Jitter(delay(it.health, it.policy, now.Sub(it.since))))
	}
	heap.Push(&s.queue, it)
	s.wake()
	return tells(before, it.health)
}

// inFleet is a verdict in the light of those of all others. It leaves the proxy out of the fleet's count.
func (s *Scheduler) inFleet(it *item, v Verdict, now time.Time) Verdict {
	s.fleet.count(it, -1)
	it.failing = v.blames()
	s.fleet.count(it, +1)
	if it.failing && s.fleet.suspects(now, it.policy.Interval) {
		s.probeOthers(now, it.policy.Interval/jitterPart)
	}
	s.fleet.look(now)
	v = s.fleet.excuse(v, now)
	s.fleet.count(it, -1)
	return v
}

// probeOthers has the proxies that do not fail probed within a time.
func (s *Scheduler) probeOthers(now time.Time, within time.Duration) {
	for _, it := range s.items {
		if soon := now.Add(Jitter(within)); it.health.Healthy && !it.failing && it.index != notQueued && it.due.After(soon) {
			it.due = soon
			heap.Fix(&s.queue, it.index)
		}
	}
}

func (s *Scheduler) wake() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// Jitter makes a delay a little longer or shorter, by chance.
func Jitter(d time.Duration) time.Duration {
	span := d / jitterPart
	if span <= 0 {
		return d
	}
	return d - span + rand.N(2*span) //nolint:gosec // spreads load, and guards nothing
}

// queue is a heap by due time.
type queue []*item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	it := x.(*item)
	it.index = len(*q)
	*q = append(*q, it)
}

func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	it.index = notQueued
	*q = old[:len(old)-1]
	return it
}
