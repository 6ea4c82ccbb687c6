// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var schedulerPolicy = Policy{Interval: 30 * time.Second, Timeout: 5 * time.Second, FailureThreshold: 3, SuccessThreshold: 1}

// script is a Func that answers by what the test says.
type script struct {
	mu      sync.Mutex
	reason  map[string]Reason
	count   map[string]int
	at      []time.Time
	targets []Target
}

func newScript() *script { return &script{reason: map[string]Reason{}, count: map[string]int{}} }

func (s *script) probe(_ context.Context, t Target, _ Limits) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[t.Address]++
	s.at = append(s.at, time.Now())
	s.targets = append(s.targets, t)
	reason, ok := s.reason[t.Address]
	if !ok {
		return Verdict{Reason: Succeeded, Exit: exit}
	}
	return Verdict{Reason: reason, Message: string(reason)}
}

func (s *script) say(address string, reason Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason[address] = reason
}

func (s *script) probes(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[address]
}

// scheduled runs a scheduler until f returns, in synthetic time.
func scheduled(t *testing.T, probe Func, workers int, f func(*Scheduler, *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		s := NewScheduler(probe, workers, func(string) { told.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Start(ctx) })
		f(s, &told)
		cancel()
		running.Wait()
	})
}

func TestSchedulerPace(t *testing.T) {
	t.Run("a fresh proxy is probed at once and often, a healthy one at its interval", func(t *testing.T) {
		script := newScript()
		script.say("a", PortClosed)
		scheduled(t, script.probe, 4, func(s *Scheduler, told *atomic.Int64) {
			s.Watch("k", Target{Address: "a"}, schedulerPolicy, Health{})
			time.Sleep(10 * time.Second)
			if n := script.probes("a"); n < 30 || n > 45 {
				t.Errorf("%d probes in the first 10 s, want about 40", n)
			}
			if told.Load() != 1 {
				t.Errorf("told %d times of one state", told.Load())
			}
			script.say("a", Succeeded)
			time.Sleep(time.Second)
			before := script.probes("a")
			time.Sleep(5 * time.Minute)
			if n := script.probes("a") - before; n < 9 || n > 11 {
				t.Errorf("%d probes in 5 minutes, want about 10", n)
			}
			if told.Load() != 2 {
				t.Errorf("told %d times, want twice", told.Load())
			}
		})
	})
	t.Run("a dying exit is out within two intervals and a timeout", func(t *testing.T) {
		script := newScript()
		scheduled(t, script.probe, 4, func(s *Scheduler, _ *atomic.Int64) {
			s.Watch("k", Target{Address: "a"}, schedulerPolicy, Health{})
			time.Sleep(time.Minute)
			script.say("a", EgressFailed)
			time.Sleep(65 * time.Second)
			if h, _ := s.Health("k"); h.Healthy {
				t.Errorf("still healthy: %+v", h)
			}
		})
	})
	t.Run("what is remembered after a restart is not doubted by one failure", func(t *testing.T) {
		script := newScript()
		script.say("a", PortClosed)
		scheduled(t, script.probe, 4, func(s *Scheduler, told *atomic.Int64) {
			s.Watch("k", Target{Address: "a"}, schedulerPolicy, Health{Proven: true, Healthy: true, Reason: Succeeded})
			time.Sleep(5 * time.Second)
			if h, _ := s.Health("k"); !h.Healthy || told.Load() != 0 {
				t.Errorf("after one failure: %+v, told %d times", h, told.Load())
			}
		})
	})
}

func TestSchedulerChanges(t *testing.T) {
	script := newScript()
	scheduled(t, script.probe, 4, func(s *Scheduler, told *atomic.Int64) {
		s.Watch("k", Target{Address: "a"}, schedulerPolicy, Health{})
		time.Sleep(time.Second)
		s.Watch("k", Target{Address: "a", Username: "other"}, schedulerPolicy, Health{})
		time.Sleep(time.Second)
		if n := script.probes("a"); n != 2 {
			t.Errorf("%d probes after a change of credentials, want 2", n)
		}
		if h, _ := s.Health("k"); !h.Healthy {
			t.Error("a change of credentials made the health forgotten")
		}
		script.say("b", PortClosed)
		s.Watch("k", Target{Address: "b"}, schedulerPolicy, Health{})
		time.Sleep(time.Second)
		if h, _ := s.Health("k"); h.Proven || h.Reason != PortClosed {
			t.Errorf("another address inherits health: %+v", h)
		}
		s.Forget("k")
		n := script.probes("b")
		time.Sleep(time.Minute)
		if script.probes("b") != n {
			t.Error("probed after it was forgotten")
		}
		if _, ok := s.Health("k"); ok {
			t.Error("known after it was forgotten")
		}
	})
}

func TestSchedulerTellsOfRefusedCredentialsAtOnce(t *testing.T) {
	script := newScript()
	scheduled(t, script.probe, 4, func(s *Scheduler, told *atomic.Int64) {
		s.Watch("k", Target{Address: "a"}, schedulerPolicy, Health{})
		time.Sleep(time.Second)
		script.say("a", AuthFailed)
		told.Store(0)
		time.Sleep(34 * time.Second)
		if h, _ := s.Health("k"); !h.Healthy || h.Last != AuthFailed || told.Load() != 1 {
			t.Errorf("after one refusal: %+v, told %d times", h, told.Load())
		}
	})
}

func TestSchedulerIsBounded(t *testing.T) {
	var now, most atomic.Int64
	slow := func(ctx context.Context, _ Target, l Limits) Verdict {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		select {
		case <-time.After(l.Total):
		case <-ctx.Done():
		}
		return Verdict{Reason: PortClosed}
	}
	scheduled(t, slow, 3, func(s *Scheduler, _ *atomic.Int64) {
		for i := range 100 {
			s.Watch(fmt.Sprint(i), Target{Address: fmt.Sprint(i)}, schedulerPolicy, Health{})
		}
		time.Sleep(time.Minute)
		if most.Load() != 3 {
			t.Errorf("%d probes at once, want 3", most.Load())
		}
	})
}

func TestSchedulerDoesNotProbeOneProxyTwiceAtATime(t *testing.T) {
	var now, most atomic.Int64
	slow := func(context.Context, Target, Limits) Verdict {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(4 * time.Second)
		return Verdict{Reason: Succeeded}
	}
	scheduled(t, slow, 8, func(s *Scheduler, _ *atomic.Int64) {
		for i := range 20 {
			s.Watch("k", Target{Address: "a", Username: fmt.Sprint(i)}, schedulerPolicy, Health{})
			time.Sleep(time.Second)
		}
		if most.Load() != 1 {
			t.Errorf("%d probes of one proxy at once", most.Load())
		}
	})
}
