// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAJobThatNobodyWantsIsEnded(t *testing.T) {
	wants := func(b *bench, who string, told <-chan error) Status { return b.Manager.Ensure(key, who, b.until(told)) }
	within(t, Options{Abandon: 15 * time.Second}, func(t *testing.T, b *bench) {
		told := make(chan error)
		wants(b, "one", told)
		wants(b, "two", told)
		b.Leave("one")
		time.Sleep(time.Hour)
		b.Leave("two")
		time.Sleep(14 * time.Second)
		if s := wants(b, "two", told); s.State != Running { // came back in time
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran, want the one that goes on", n)
		}
		b.Leave("two", key) // wants this still
		time.Sleep(time.Hour)
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran: what was still wanted was ended", n)
		}
		b.Leave("two")
		b.Leave("nobody")
		time.Sleep(16 * time.Second)
		synctest.Wait()
		b.Manager.mu.Lock()
		if n := len(b.jobs) + len(b.wanted); n != 0 {
			t.Errorf("%d jobs or wishes are left", n)
		}
		b.Manager.mu.Unlock()
		if s := wants(b, "three", told); s.State != Queued || s.Attempts != 1 {
			t.Errorf("%+v: being abandoned counts as a failure", s)
		}
		synctest.Wait()
		if n := b.started.Load(); n != 2 {
			t.Errorf("%d jobs ran, want a second", n)
		}
	})
	within(t, Options{PerHost: 1}, func(t *testing.T, b *bench) {
		told := make(chan error)
		wants(b, "one", told)
		synctest.Wait()
		queued := Key{Host: key.Host, Image: "other"}
		b.Manager.Ensure(queued, "two", b.until(told))
		b.Leave("two")
		time.Sleep(time.Minute)
		told <- nil
		synctest.Wait()
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d jobs ran: one started that nobody wanted", n)
		}
	})
	within(t, Options{}, func(t *testing.T, b *bench) {
		slow := make(chan error) // an end that takes its time
		b.Manager.Ensure(key, "one", func(ctx context.Context, _ func(Progress)) error {
			<-ctx.Done()
			<-slow
			return ctx.Err()
		})
		synctest.Wait()
		b.changes = nil
		b.Leave("one")
		time.Sleep(time.Minute)
		if s := wants(b, "two", slow); s.State != Queued {
			t.Errorf("%+v: what ends is taken for what runs", s)
		}
		slow <- nil
		b.wantChanges(key) // and so asks again
	})
}

// figures is an Observer that keeps what it is told.
type figures struct {
	nobody
	mu    sync.Mutex
	ended []string
}

func (f *figures) JobEnded(host string, took time.Duration, bytes int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, fmt.Sprintf("%s %v %d %v", host, took, bytes, err))
}

func TestFiguresAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &figures{}
		depot, err := NewDepot(DepotOptions{Observer: told})
		if err != nil {
			t.Fatal(err)
		}
		m := NewManager(Options{Depot: depot})
		m.Ensure(key, "somebody", func(_ context.Context, report func(Progress)) error {
			time.Sleep(3 * time.Second)
			report(Progress{StepStoring, 7, 8})
			return errors.New("link: EOF")
		})
		time.Sleep(4 * time.Second)
		m.Close()
		if diff := cmp.Diff([]string{"a 3s 7 link: EOF"}, told.ended); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRate(t *testing.T) {
	r, start := rate{}, time.Now()
	at := func(second int, done int64) (int64, time.Duration) {
		p := Progress{StepStoring, done, 1000}
		r.update(start.Add(time.Duration(second)*time.Second), p)
		return int64(r.perSecond), r.remaining(p)
	}
	if perSecond, remaining := at(0, 0); perSecond != 0 || remaining != 0 {
		t.Errorf("%d, %v of nothing", perSecond, remaining)
	}
	if perSecond, remaining := at(10, 500); perSecond != 50 || remaining != 10*time.Second {
		t.Errorf("%d, %v", perSecond, remaining)
	}
	if perSecond, _ := at(20, 600); perSecond != 10 {
		t.Errorf("%d: what was long ago counts still", perSecond)
	}
	if perSecond, _ := at(21, 0); perSecond != 0 {
		t.Errorf("%d after a new start", perSecond)
	}
}
