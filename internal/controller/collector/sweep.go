// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// sweep is one look at one entry.
type sweep struct {
	*Collector
	entry     string
	provider  provider.Provider
	reclaimer provider.SpaceReclaimer
	// inForce says whether the providers file has an entry.
	inForce func(entry string) bool
}

// survey is what one host answered.
type survey struct {
	host string
	// began before the host was asked.
	began time.Time
	found []provider.Leftover
	// left is what of it no Proxy owns, foreign what only looks like ours, due what has looked like a leftover for long enough.
	left, foreign, due []provider.Leftover
}

// run goes from what the hosts hold, by what Proxies there are, to what is removed. The order matters: an instance that a host told of has its Proxy in
// a list that is read afterwards, if it has one at all.
func (s *sweep) run(ctx context.Context) error {
	surveys := s.survey(ctx)
	if len(surveys) == 0 {
		return nil
	}
	proxies, err := s.Proxies(ctx)
	if err != nil {
		return fmt.Errorf("entry %s: reading the Proxies; nothing is removed: %w", s.entry, err)
	}
	for i := range surveys {
		v := &surveys[i]
		v.left, v.foreign = sortOut(v.found, proxies, s.inForce)
		v.due = s.seen.due(place{s.entry, v.host}, v.left, s.Now(), s.Grace)
		s.tellVanished(*v, proxies)
	}
	record, err := s.Ledger.Load(ctx, s.entry)
	if errors.Is(err, ErrNoRecord) && !slices.ContainsFunc(surveys, func(v survey) bool { return len(v.due) > 0 }) {
		return nil // the operator has only just started
	}
	if err != nil {
		return fmt.Errorf("entry %s: nothing is removed: %w", s.entry, err)
	}
	return s.act(ctx, record, surveys, proxies)
}

// survey asks every host that is ready.
func (s *sweep) survey(ctx context.Context) []survey {
	var mu sync.Mutex
	var all []survey
	group := errgroup.Group{}
	group.SetLimit(fanOut)
	for _, h := range s.provider.Hosts() {
		if !h.Ready && h.Reason != provider.HostDegraded { // a full pool is Degraded, and the one that needs it most
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, sweepTime)
			defer cancel()
			v := survey{host: h.Name, began: s.Now()}
			var err error
			if v.found, err = s.reclaimer.Leftovers(ctx, h.Name); err != nil {
				s.failed(ctx, place{s.entry, h.Name}, err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, v)
			return nil
		})
	}
	_ = group.Wait() // each host's failure has been reported
	slices.SortFunc(all, func(a, b survey) int { return cmp.Compare(a.host, b.host) })
	return all
}

// sortOut takes out of what a host holds what Proxies own, what is retained, and what is of other entries in force.
func sortOut(found []provider.Leftover, proxies Proxies, inForce func(string) bool) (left, foreign []provider.Leftover) {
	for _, l := range found {
		switch {
		case l.Kind == provider.LeftoverForeign:
			if !inForce(l.Entry) {
				foreign = append(foreign, l)
			}
		case l.UID == "" && (l.Kind == provider.LeftoverInstance || l.Kind == provider.LeftoverDisk):
			// A provider that cannot say whose it is.
		case l.UID != "" && (l.Retained || proxies.Has(l.UID)):
		default:
			left = append(left, l)
		}
	}
	return left, foreign
}

// tellVanished wakes the Proxies of a host whose instance it does not have, though it had it before it was asked.
func (s *sweep) tellVanished(v survey, proxies Proxies) {
	there := map[string]bool{}
	for _, l := range v.found {
		if l.Kind == provider.LeftoverInstance {
			there[provider.CompactUID(l.UID)] = true
		}
	}
	for _, p := range proxies.on(s.entry, v.host) {
		if !p.Deleting && !p.Provisioned.IsZero() && p.Provisioned.Before(v.began) && !there[provider.CompactUID(p.UID)] {
			s.Report.Vanished(s.entry, v.host, p)
			s.Wake(s.entry, p.UID)
		}
	}
}

// act removes what is due, unless the brake holds. What is going to be removed is recorded first, so that no crash makes it forgotten.
func (s *sweep) act(ctx context.Context, record Record, surveys []survey, proxies Proxies) error {
	now := s.Now()
	next := record.next(now)
	next.Foreign = s.brakes.foreign(s.entry, surveys)
	seen := situation{entry: s.entry, proxies: proxies.Len(), instances: instancesOf(s.provider.Hosts())}
	for _, v := range surveys {
		seen.add(v)
	}
	next.Removed = uncounted(next.Removed, seen.among(record.Status.Pending))
	seen.removed = removedIn(next.Removed, now)
	verdict := s.brakes.judge(seen, record, now)
	next.Stopped = verdict.stop
	unasked := int32(0)
	if verdict.stop == nil && s.Mode == On {
		unasked = int32(len(verdict.unasked))
		next.Pending = verdict.unasked[:min(len(verdict.unasked), maxPending)]
	}
	before := slices.Clone(next.Removed)
	next.Removed = counted(before, now, unasked)
	if err := s.Ledger.Save(ctx, s.entry, next); err != nil {
		return fmt.Errorf("entry %s: nothing is removed: %w", s.entry, err)
	}
	s.tell(record, next)
	if verdict.stop != nil {
		return nil
	}
	removed := s.reclaim(ctx, surveys)
	if s.Mode == On {
		s.brakes.spent(s.entry, removed)
	}
	if unasked == 0 {
		return nil
	}
	done := int32(0)
	for _, name := range verdict.unasked {
		if removed[name] {
			done++
		}
	}
	next.Removed, next.Pending = counted(before, now, done), nil
	return s.Ledger.Save(ctx, s.entry, next)
}

// tell reports how the brake and what is foreign changed.
func (s *sweep) tell(record Record, next v1alpha1.CollectorStatus) {
	foreign := 0
	if next.Foreign != nil {
		foreign = int(next.Foreign.Count)
	}
	s.Report.Seen(s.entry, foreign, next.Stopped != nil)
	was, is := record.Status.Stopped, next.Stopped
	switch {
	case is != nil && (was == nil || was.Token != is.Token):
		s.Report.Stopped(s.entry, *is)
	case is == nil && was != nil && record.Approval == was.Token:
		s.Report.Resumed(s.entry, fmt.Sprintf("somebody approved that %d instances without a Proxy are removed", was.Instances))
	case is == nil && was != nil:
		s.Report.Resumed(s.entry, "no instance without a Proxy is left")
	}
}

// reclaim removes what is due on all hosts, and returns the instances that went, as host/uid.
func (s *sweep) reclaim(ctx context.Context, surveys []survey) (removed map[string]bool) {
	var mu sync.Mutex
	removed = map[string]bool{}
	group := errgroup.Group{}
	group.SetLimit(fanOut)
	for _, v := range surveys {
		group.Go(func() error {
			for _, name := range s.reclaimHost(ctx, v) {
				mu.Lock()
				removed[name] = true
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // each host's failure has been reported
	return removed
}

func (s *sweep) reclaimHost(ctx context.Context, v survey) []string {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	at := place{s.entry, v.host}
	var chosen []provider.Leftover
	for _, l := range v.due {
		if l.Kind == provider.LeftoverUnreadable || l.Kind == provider.LeftoverNewer {
			s.Report.Kept(at.entry, at.host, l, l.Why)
			s.seen.again(at, l, s.Now())
			continue
		}
		chosen = append(chosen, l)
	}
	results, err := s.reclaimer.Reclaim(ctx, at.host, chosen, s.Mode == DryRun)
	for _, r := range results {
		s.seen.again(at, r.Leftover, s.Now())
		switch {
		case r.Removed:
			s.Report.Collected(at.entry, at.host, r.Leftover, s.Mode == DryRun)
		case r.UID != "" && !r.Moot:
			s.Report.Kept(at.entry, at.host, r.Leftover, r.Kept)
		default:
			s.Log.Debug("a leftover is kept", "entry", at.entry, "host", at.host, "object", r.Object, "why", r.Kept)
		}
	}
	if err != nil {
		s.failed(ctx, at, err)
	}
	return whole(at.host, chosen, results)
}

// whole are the instances of which all went that was chosen. One of which something is left is still to come: it would count twice otherwise, and the brake
// would take its last volume for another instance.
func whole(host string, chosen []provider.Leftover, results []provider.Reclaimed) (removed []string) {
	gone := map[string]bool{}
	for _, r := range results {
		gone[r.Object] = r.Removed || r.Moot
		if name := nameOf(host, r.UID); r.Removed && !slices.Contains(removed, name) {
			removed = append(removed, name)
		}
	}
	return slices.DeleteFunc(removed, func(name string) bool {
		return slices.ContainsFunc(chosen, func(l provider.Leftover) bool { return nameOf(host, l.UID) == name && !gone[l.Object] })
	})
}
