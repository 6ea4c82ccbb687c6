// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// bench is a manager with jobs that run until they are told to end.
type bench struct {
	*Manager
	t       *testing.T
	mu      sync.Mutex
	changes []Key
	started atomic.Int32
}

// within runs a test in a bubble of fake time, and ends the manager.
func within(t *testing.T, options Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	withinTurns(t, 0, options, test)
}

// withinTurns has room for so many jobs at once.
func withinTurns(t *testing.T, n int, options Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t}
		options.Depot = turns(n)
		options.OnChange = func(key Key, _ []string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changes = append(b.changes, key)
		}
		b.Manager = NewManager(options)
		defer b.Close()
		test(t, b)
	})
}

// Ensure wants a job for one who never leaves.
func (b *bench) Ensure(key Key, work Job) Status { return b.Manager.Ensure(key, "somebody", work) }

func (b *bench) wantChanges(want ...Key) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(want, b.changes); diff != "" {
		b.t.Errorf("changes:\n%s", diff)
	}
	b.changes = nil
}

func (b *bench) want(got, want Status) {
	b.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		b.t.Errorf("status:\n%s", diff)
	}
}

// until is a job that ends with err when told to, or with its context.
func (b *bench) until(told <-chan error) Job {
	return func(ctx context.Context, report func(Progress)) error {
		b.started.Add(1)
		select {
		case err := <-told:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// turns is a depot with room for n jobs at once.
func turns(n int) *Depot {
	d, _ := NewDepot(DepotOptions{Turns: n})
	return d
}

var key = Key{Host: "a", Image: "debian-12"}

func TestOneJobAKeyAndNobodyWaits(t *testing.T) {
	within(t, Options{}, func(t *testing.T, b *bench) {
		told := make(chan error)
		before := time.Now()
		for range 50 { // as many Proxies on one uncached image: H1b, which the controllers' test proves whole
			if s := b.Ensure(key, b.until(told)); s.State != Queued && s.State != Running || s.Attempts != 1 {
				t.Errorf("status %+v", s)
			}
		}
		if waited := time.Since(before); waited != 0 {
			t.Errorf("Ensure took %v", waited)
		}
		synctest.Wait()
		b.want(b.Ensure(key, b.until(told)), Status{State: Running, Attempts: 1})
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran", n)
		}
		b.wantChanges(key) // it started
		told <- nil
		b.wantChanges(key)
		b.want(b.Ensure(key, b.until(told)), Status{State: Done, Attempts: 1})
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran", n)
		}
	})
}

func TestForget(t *testing.T) {
	within(t, Options{}, func(t *testing.T, b *bench) {
		told := make(chan error)
		b.Ensure(key, b.until(told))
		b.Forget(key)
		b.Ensure(key, b.until(told))
		told <- nil
		synctest.Wait()
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran: a running one was forgotten", n)
		}
		b.Forget(key)
		b.Ensure(key, b.until(told))
		synctest.Wait()
		if n := b.started.Load(); n != 2 {
			t.Errorf("%d jobs ran: an ended one was not forgotten", n)
		}
	})
}

func TestFailuresAreRetriedWhenTheirTimeCame(t *testing.T) {
	broken := errors.New("link: EOF")
	wrong := &Error{Kind: Permanent, Message: "wrong digest"}
	full := &Error{Kind: Capacity, Message: "full"}
	for name, test := range map[string]struct {
		err   error
		waits []time.Duration
	}{
		"unclassified": {broken, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}},
		"Capacity":     {full, []time.Duration{2 * time.Second, 4 * time.Second}},
		"Permanent":    {fmt.Errorf("fetch: %w", wrong), []time.Duration{10 * time.Minute, 10 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, Options{RetryMax: 10 * time.Second}, func(t *testing.T, b *bench) {
				failing := func(context.Context, func(Progress)) error {
					b.started.Add(1)
					return test.err
				}
				for i, wait := range test.waits {
					b.Ensure(key, failing)
					b.wantChanges(key, key)
					want := Status{State: Failed, Err: test.err, RetryAt: time.Now().Add(wait), Attempts: i + 1}
					b.want(b.Ensure(key, failing), want)
					time.Sleep(wait - time.Nanosecond)
					b.want(b.Ensure(key, failing), want)
					b.wantChanges()
					time.Sleep(time.Nanosecond)
				}
				if n := int(b.started.Load()); n != len(test.waits) {
					t.Errorf("%d attempts, want %d", n, len(test.waits))
				}
				// A corrected digest or URL is another key, and starts at once.
				b.want(b.Ensure(Key{Host: "a", Image: "corrected"}, failing), Status{State: Queued, Attempts: 1})
			})
		})
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	withinTurns(t, 3, Options{PerHost: 2}, func(t *testing.T, b *bench) {
		running := map[string]*atomic.Int32{"a": {}, "b": {}}
		told := map[string]chan error{"a": make(chan error), "b": make(chan error)}
		start := func(host string, n int) {
			b.Ensure(Key{Host: host, Image: fmt.Sprint(n)}, func(ctx context.Context, report func(Progress)) error {
				running[host].Add(1)
				defer running[host].Add(-1)
				return b.until(told[host])(ctx, report)
			})
		}
		for n := range 10 {
			start("a", n)
		}
		synctest.Wait()
		if n := running["a"].Load(); n != 2 {
			t.Errorf("%d jobs run on host a, want 2", n)
		}
		for n := range 10 { // the queue of host a is no hindrance to host b
			start("b", n)
		}
		synctest.Wait()
		if a, b := running["a"].Load(), running["b"].Load(); a != 2 || b != 1 {
			t.Errorf("%d and %d jobs run, want 2 and 1", a, b)
		}
		for range 10 {
			told["b"] <- nil
			synctest.Wait()
			if a, b := running["a"].Load(), running["b"].Load(); a > 2 || b > 2 || a+b > 3 {
				t.Errorf("%d and %d jobs run", a, b)
			}
		}
	})
}

func TestProgressIsToldInSteps(t *testing.T) {
	within(t, Options{}, func(t *testing.T, b *bench) {
		b.Ensure(key, func(_ context.Context, report func(Progress)) error {
			for done := range int64(1001) {
				report(Progress{StepStoring, done, 1000})
				time.Sleep(100 * time.Millisecond) // a tenth each 10 s
			}
			return nil
		})
		time.Sleep(55 * time.Second)
		synctest.Wait()
		status := b.Ensure(key, nil)
		b.want(status, Status{State: Running, Progress: Progress{StepStoring, 550, 1000}, Rate: 10, Remaining: 45 * time.Second, Attempts: 1})
		if status.Percent() != 55 {
			t.Errorf("%d %%", status.Percent())
		}
		b.wantChanges(key, key, key, key, key, key)
	})
	within(t, Options{}, func(t *testing.T, b *bench) {
		b.Ensure(key, func(_ context.Context, report func(Progress)) error {
			for done := range int64(1001) {
				report(Progress{StepStoring, done, 1000}) // all at once: one word on the way, one at the end
			}
			return nil
		})
		b.wantChanges(key, key, key)
	})
}

func TestPercentOfWhatIsNotKnown(t *testing.T) {
	for want, status := range map[int]Status{0: {}, 50: {Progress: Progress{Done: 1 << 62, Total: 1<<63 - 1}}, 100: {State: Done}} {
		if got := status.Percent(); got != want {
			t.Errorf("%+v is %d %%, want %d", status, got, want)
		}
	}
}

func TestCloseEndsAllJobsAndStartsNone(t *testing.T) {
	withinTurns(t, 1, Options{PerHost: 1}, func(t *testing.T, b *bench) {
		told := make(chan error)
		for n := range 6 { // one runs, the others wait for their host or for their turn among all
			b.Ensure(Key{Host: fmt.Sprint(n % 2), Image: fmt.Sprint(n)}, b.until(told))
		}
		synctest.Wait()
		b.changes = nil
		b.Close() // the bubble fails if a goroutine is left
		before := b.started.Load()
		status := b.Ensure(Key{Host: "c"}, b.until(told))
		synctest.Wait()
		if status.State != Failed || status.Err == nil || b.started.Load() != before {
			t.Errorf("%+v after Close, %d jobs started", status, b.started.Load()-before)
		}
		b.wantChanges()
		b.Close()
	})
}

func TestOnChangeMayAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *Manager
		var seen Status
		m = NewManager(Options{OnChange: func(k Key, who []string) { seen = m.Ensure(k, who[0], nil) }})
		m.Ensure(key, "somebody", func(context.Context, func(Progress)) error { return nil })
		synctest.Wait()
		m.Close()
		if seen.State != Done {
			t.Errorf("OnChange saw %+v", seen)
		}
	})
}

func TestEndedJobsAreForgottenInTime(t *testing.T) {
	within(t, Options{}, func(t *testing.T, b *bench) {
		quick := func(context.Context, func(Progress)) error { return nil }
		for n := range 100 {
			b.Ensure(Key{Image: fmt.Sprint(n)}, quick)
		}
		synctest.Wait()
		time.Sleep(rememberEnded + time.Second)
		b.Ensure(key, quick)
		b.Manager.mu.Lock()
		defer b.Manager.mu.Unlock()
		if n := len(b.jobs); n != 1 {
			t.Errorf("%d jobs remembered, want 1", n)
		}
	})
}
