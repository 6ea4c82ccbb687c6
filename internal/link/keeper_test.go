// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// fakeHost is a Keeper's host: it is slow, and up or down.
type fakeHost struct {
	mu    sync.Mutex
	err   error
	takes time.Duration
	dials []time.Time
	now   int // dials under way
	most  int
}

func (f *fakeHost) set(err error, takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.takes = err, takes
}

func (f *fakeHost) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.dials)
}

func (f *fakeHost) begin() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials = append(f.dials, time.Now())
	f.now++
	f.most = max(f.most, f.now)
	return f.takes
}

func (f *fakeHost) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	return f.err
}

func keeperOf(t *testing.T, f *fakeHost) *Keeper {
	k := NewKeeper(Target{Hop: Hop{Address: "kvm1:22"}})
	k.random = func() float64 { return 0.999 }
	k.dial = func(ctx context.Context, _ Target) (*Link, error) {
		select {
		case <-time.After(f.begin()):
		case <-ctx.Done():
		}
		if err := errors.Join(f.end(), ctx.Err()); err != nil {
			return nil, err
		}
		return pipeLink(t, Target{}, &linktest.Peer{})
	}
	t.Cleanup(k.Close)
	return k
}

func mustGet(t *testing.T, k *Keeper) *Link {
	t.Helper()
	l, err := k.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var errDown = &DialError{Host: "kvm1:22", Stage: "connecting", Err: errors.New("connection refused")}

func TestKeeperShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{takes: time.Second}
		k := keeperOf(t, f)
		var wg sync.WaitGroup
		got := make([]*Link, 50)
		for i := range got {
			wg.Go(func() { got[i], _ = k.Get(t.Context()) })
		}
		wg.Wait()
		for _, l := range got {
			if l == nil || l != got[0] {
				t.Fatal("not all have one link")
			}
		}
		if f.count() != 1 {
			t.Errorf("%d dials", f.count())
		}
	})
}

func TestKeeperWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{takes: time.Minute}
		k := keeperOf(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := k.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		mustGet(t, k) // the dial went on
		if f.count() != 1 {
			t.Errorf("%d dials", f.count())
		}
	})
}

func TestKeeperBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{err: errDown}
		k := keeperOf(t, f)
		for start := time.Now(); time.Since(start) < 10*time.Minute; {
			asked := time.Now()
			_, err := k.Get(t.Context())
			var dialErr *DialError
			if !errors.As(err, &dialErr) || time.Since(asked) > 0 {
				t.Fatalf("got %v after %v", err, time.Since(asked))
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := f.count(); n < 20 || n > 30 {
			t.Errorf("%d dials in ten minutes", n)
		}
		last := f.dials[len(f.dials)-1].Sub(f.dials[len(f.dials)-2])
		if last > outagePace.max+100*time.Millisecond || last < outagePace.max/2 {
			t.Errorf("the pauses grew to %v", last)
		}
		f.set(nil, 0)
		time.Sleep(outagePace.max)
		mustGet(t, k)
		if f.most != 1 {
			t.Errorf("%d dials at once", f.most)
		}
	})
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: outagePace.first, 2: 2 * outagePace.first, 5: 8 * time.Second, 7: outagePace.max, 1 << 40: outagePace.max} {
		for _, random := range []float64{0, 0.5, 0.999} {
			if got := outagePace.backoff(failures, random); got < want/2 || got > want {
				t.Errorf("%d failures, random %v: %v", failures, random, got)
			}
		}
	}
}

func TestKeeperRemembersRefusal(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		t.Run(fmt.Sprintf("dedicated=%v", dedicated), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeHost{err: &AuthError{Host: "kvm1:22", Message: "revoked"}}
				k := keeperOf(t, f)
				get := k.Get
				if dedicated {
					get = k.Dedicated
				}
				for start := time.Now(); time.Since(start) < authMemory; time.Sleep(time.Second) {
					var auth *AuthError
					if _, err := get(t.Context()); !errors.As(err, &auth) {
						t.Fatalf("got %v", err)
					}
				}
				if f.count() != 1 {
					t.Errorf("%d dials", f.count())
				}
				f.set(nil, 0)
				if _, err := get(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestKeeperReplacesDeadLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{}
		k := keeperOf(t, f)
		first := mustGet(t, k)
		first.Close()
		second := mustGet(t, k) // at once: a restart of the daemon costs no pause
		if first == second {
			t.Fatal("the dead link again")
		}
		second.Close()
		var dead *DeadError
		if _, err := k.Get(t.Context()); !errors.As(err, &dead) {
			t.Errorf("a host whose links die young gets no pause: %v", err)
		}
		time.Sleep(outagePace.max)
		third := mustGet(t, k)
		time.Sleep(healthyLife)
		third.Close()
		mustGet(t, k)
		if f.count() != 4 {
			t.Errorf("%d dials", f.count())
		}
	})
}

func TestKeeperWhoseHostFellSilentHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{}
		k := keeperOf(t, f)
		mustGet(t, k).Close()
		f.set(nil, time.Minute)
		start := time.Now()
		var dead *DeadError
		if _, err := k.Get(t.Context()); !errors.As(err, &dead) || time.Since(start) != patience {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestKeeperDedicated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeperOf(t, &fakeHost{})
		shared := mustGet(t, k)
		own, err := k.Dedicated(t.Context())
		if err != nil || own == shared {
			t.Fatal("not a link of its own", err)
		}
		shared.Close()
		mustWork(t, own)
		k.Close()
		if own.Err() == nil {
			t.Error("it outlives its keeper")
		}
	})
}

func TestKeeperClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeperOf(t, &fakeHost{takes: time.Hour})
		waiting := make(chan error, 2)
		go func() { _, err := k.Get(t.Context()); waiting <- err }()
		go func() { _, err := k.Dedicated(t.Context()); waiting <- err }()
		synctest.Wait()
		k.Close()
		for range 2 {
			if err := <-waiting; err == nil {
				t.Error("got a link from a closed keeper")
			}
		}
		for _, get := range []func(context.Context) (*Link, error){k.Get, k.Dedicated} {
			if _, err := get(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestKeeperDialsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{takes: time.Second}
		k := keeperOf(t, f)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := k.Dedicated(t.Context()); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() { mustGet(t, k) })
		}
		wg.Wait()
		if f.most != 1 || f.count() != 11 {
			t.Errorf("%d dials, up to %d at once", f.count(), f.most)
		}
	})
}

// TestKeeperWaitersShareAFailure: who waited for a dial that failed does not dial into the pause after it.
func TestKeeperWaitersShareAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeHost{err: errThrottled, takes: time.Second}
		k := keeperOf(t, f)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := k.Dedicated(t.Context())
				expectThrottled(t, err, "sshd")
			})
		}
		wg.Wait()
		if f.count() != 1 {
			t.Errorf("%d dials", f.count())
		}
	})
}

var errThrottled = &ThrottledError{Host: "kvm1:22", Message: "its sshd closed the connection"}

func TestKeeperOfAThrottledHost(t *testing.T) {
	t.Run("it is asked at a pace of its own, with jitter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeHost{err: errThrottled}
			k := keeperOf(t, f)
			for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(50 * time.Millisecond) {
				_, err := k.Get(t.Context())
				expectThrottled(t, err, "sshd")
			}
			first, last := f.dials[1].Sub(f.dials[0]), f.dials[len(f.dials)-1].Sub(f.dials[len(f.dials)-2])
			if f.count() > 16 || first < throttlePace.first/2 || last < throttlePace.max/2 || last > throttlePace.max+time.Second {
				t.Errorf("%d dials in ten minutes, the first pause %v, the last %v", f.count(), first, last)
			}
			f.set(nil, 0)
			time.Sleep(throttlePace.max)
			mustGet(t, k)
			if k.failures != 0 || k.throttled != 0 {
				t.Errorf("it counts %d failures and %d refusals of a host that is up", k.failures, k.throttled)
			}
		})
	})
	t.Run("the link that it has lives on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeHost{}
			k := keeperOf(t, f)
			l := mustGet(t, k)
			f.set(errThrottled, 0)
			_, err := k.Dedicated(t.Context())
			expectThrottled(t, err, "sshd")
			_, err = k.Dedicated(t.Context()) // in the pause
			expectThrottled(t, err, "next attempt in")
			if f.count() != 2 {
				t.Errorf("%d dials", f.count())
			}
			if mustGet(t, k) != l {
				t.Error("the shared link was given up")
			}
			mustWork(t, l)
		})
	})
}
