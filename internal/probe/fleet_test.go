// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// failing has that many of n proxies on so many hosts fail from then on, and says how many are healthy after each of some times.
func failing(t *testing.T, reason Reason, n, hosts, fail int, after ...time.Duration) (healthy []int, last Health) {
	t.Helper()
	script := newScript()
	scheduled(t, script.probe, 8, func(s *Scheduler, _ *atomic.Int64) {
		for i := range n {
			s.Watch(fmt.Sprint(i), Target{Address: fmt.Sprint(i), Place: fmt.Sprint(i % hosts)}, schedulerPolicy, Health{})
		}
		time.Sleep(2 * schedulerPolicy.Interval)
		for i := range fail {
			script.say(fmt.Sprint(i), reason)
		}
		began := time.Now()
		for _, at := range after {
			time.Sleep(at - time.Since(began))
			count := 0
			for i := range n {
				h, _ := s.Health(fmt.Sprint(i))
				if h.Healthy {
					count++
				}
			}
			healthy = append(healthy, count)
		}
		last, _ = s.Health("0")
	})
	return healthy, last
}

func TestWhenManyFailAtOnceNothingIsHeldAgainstThem(t *testing.T) {
	soon, late := 4*time.Minute, fleetPatience+3*schedulerPolicy.Interval
	for name, c := range map[string]struct {
		reason         Reason
		n, hosts, fail int
		soon, late     int
	}{
		"all of ten on two hosts: for five minutes":              {EgressFailed, 10, 2, 10, 10, 0},
		"seven of twelve on three hosts: for five minutes":       {PortClosed, 12, 3, 7, 12, 5},
		"half of them are not enough":                            {EgressFailed, 12, 3, 6, 6, 6},
		"one host alone is to blame for its proxies":             {PortClosed, 12, 1, 12, 0, 0},
		"nine are too few to tell":                               {EgressFailed, 9, 2, 9, 0, 0},
		"open proxies were seen to be open, however many":        {OpenProxy, 10, 2, 10, 0, 0},
		"refused credentials: somebody changed all of them, say": {AuthFailed, 10, 2, 10, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := failing(t, c.reason, c.n, c.hosts, c.fail, soon, late)
			if got[0] != c.soon || got[1] != c.late {
				t.Errorf("healthy after %s: %d, want %d; after %s: %d, want %d", soon, got[0], c.soon, late, got[1], c.late)
			}
		})
	}
	t.Run("and it says why", func(t *testing.T) {
		_, h := failing(t, EgressFailed, 10, 2, 10, soon)
		if !h.Healthy || h.Reason != ManyFailing || !strings.Contains(h.Message, "10 of 10 proxies on 2 hosts fail at once") || !strings.Contains(h.Message, "EgressFailed") {
			t.Errorf("%+v", h)
		}
	})
}

func TestAFleetThatRecoveredHasAnotherFiveMinutes(t *testing.T) {
	script := newScript()
	scheduled(t, script.probe, 8, func(s *Scheduler, _ *atomic.Int64) {
		say := func(reason Reason) {
			for i := range 10 {
				script.say(fmt.Sprint(i), reason)
			}
		}
		for i := range 10 {
			s.Watch(fmt.Sprint(i), Target{Address: fmt.Sprint(i), Place: fmt.Sprint(i % 2)}, schedulerPolicy, Health{})
		}
		time.Sleep(time.Minute)
		for range 3 {
			say(EgressFailed)
			time.Sleep(4 * time.Minute)
			say(Succeeded)
			time.Sleep(time.Minute)
		}
		for i := range 10 {
			if h, _ := s.Health(fmt.Sprint(i)); !h.Healthy || h.Reason != Succeeded {
				t.Errorf("%d: %+v", i, h)
			}
		}
	})
}

func TestTheFleetForgetsProxiesThatGo(t *testing.T) {
	script := newScript()
	scheduled(t, script.probe, 8, func(s *Scheduler, _ *atomic.Int64) {
		for i := range 20 {
			s.Watch(fmt.Sprint(i), Target{Address: fmt.Sprint(i), Place: fmt.Sprint(i % 2)}, schedulerPolicy, Health{})
		}
		time.Sleep(time.Minute)
		for i := range 20 {
			script.say(fmt.Sprint(i), EgressFailed)
		}
		time.Sleep(time.Minute)
		for i := range 20 {
			s.Watch(fmt.Sprint(i), Target{Address: "new", Place: "elsewhere"}, schedulerPolicy, Health{})
			s.Forget(fmt.Sprint(i))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fleet.healthy != 0 || s.fleet.total != 0 || len(s.fleet.failing) != 0 {
			t.Errorf("%+v", s.fleet)
		}
	})
}
