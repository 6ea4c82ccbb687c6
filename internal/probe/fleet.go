// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"time"
)

// When so many fail at once, the cause is more likely to be near the operator than at each of them.
const (
	// fleetLeast proxies, on fleetPlaces hosts, are what is needed to say so.
	fleetLeast  = 10
	fleetPlaces = 2
	// fleetPatience is how long nothing is held against any of them.
	fleetPatience = 5 * time.Minute
	// fleetSuspect is the part that fails before the others are probed early.
	fleetSuspect = 10
)

// fleet counts the proxies that are in use and how many of them fail now. A verdict older than the probe interval of its proxy does not count.
type fleet struct {
	healthy int
	failing map[string]int // by place
	total   int            // of failing
	// since when too many fail; zero while they do not.
	since time.Time
	// asked is when all the others were probed early, to know.
	asked time.Time
}

// count takes a proxy in, or out with -1.
func (f *fleet) count(it *item, by int) {
	if !it.health.Healthy {
		return
	}
	f.healthy += by
	if !it.failing {
		return
	}
	if f.failing == nil {
		f.failing = map[string]int{}
	}
	f.total += by
	f.failing[it.target.Place] += by
	if f.failing[it.target.Place] == 0 {
		delete(f.failing, it.target.Place)
	}
}

// tooMany says whether more than half of the proxies in use fail.
func (f *fleet) tooMany() bool {
	return f.healthy >= fleetLeast && 2*f.total > f.healthy && len(f.failing) >= fleetPlaces
}

// suspects says whether so many fail that the others are worth a look before any is blamed. They are worth one an interval.
func (f *fleet) suspects(now time.Time, interval time.Duration) bool {
	if f.healthy < fleetLeast || f.total < f.healthy/fleetSuspect || f.tooMany() || now.Sub(f.asked) < interval {
		return false
	}
	f.asked = now
	return true
}

// look notes when it began that too many fail, or that it is over.
func (f *fleet) look(now time.Time) {
	switch {
	case !f.tooMany():
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
	}
}

// excuse is a verdict that holds nothing against a proxy, in the place of one that does while too many fail at once; else it is the verdict itself. An
// open proxy was seen to be one, and has no excuse.
func (f *fleet) excuse(v Verdict, now time.Time) Verdict {
	if !v.blames() || v.Reason == OpenProxy || f.since.IsZero() || now.Sub(f.since) >= fleetPatience {
		return v
	}
	return Verdict{Reason: ManyFailing, Message: fmt.Sprintf(
		"%d of %d proxies on %d hosts fail at once, so nothing is held against any of them for %s; check the operator's network and the reflectors (this one: %s)",
		f.total, f.healthy, len(f.failing), fleetPatience, v.Message)}
}

// blames says whether a verdict speaks against the proxy.
func (v Verdict) blames() bool {
	return v.Reason != Succeeded && v.Reason != ReflectorDown && v.Reason != ManyFailing
}
