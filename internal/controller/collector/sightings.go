// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// place is a host of an entry.
type place struct{ entry, host string }

// sightings are when leftovers were first seen as they are. Times on hosts decide nothing: they may be wrong or missing. A restart of the operator
// begins anew, so it can only delay.
type sightings struct {
	mu    sync.Mutex
	first map[place]map[provider.Leftover]time.Time
}

// due are those of found that have been found in every sweep of the place, unchanged, for at least grace. One that was missing meanwhile, whose
// kind changed, or that grew, begins anew.
func (s *sightings) due(at place, found []provider.Leftover, now time.Time, grace time.Duration) []provider.Leftover {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = map[place]map[provider.Leftover]time.Time{}
	}
	before, next := s.first[at], make(map[provider.Leftover]time.Time, len(found))
	var due []provider.Leftover
	for _, l := range found {
		first, known := before[l]
		if !known || first.After(now) { // a clock that was set back
			first = now
		}
		next[l] = first
		if known && now.Sub(first) >= grace {
			due = append(due, l)
		}
	}
	s.first[at] = next
	return due
}

// again has a leftover wait for a whole grace period once more.
func (s *sightings) again(at place, l provider.Leftover, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.first[at][l]; known {
		s.first[at][l] = now
	}
}
