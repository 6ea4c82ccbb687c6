// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// hoard is a provider whose hosts hold leftovers.
type hoard struct {
	provider.Provider
	hosts []provider.HostState
	left  map[string][]provider.Leftover
	kept  map[string]string
	err   error
	asked []provider.Leftover
	dry   bool
	moot  map[string]bool
	// before anything is removed, and whenever the host is asked what it holds.
	before, looked func()
}

func (h *hoard) Hosts() []provider.HostState { return h.hosts }

func (h *hoard) Leftovers(_ context.Context, host string) ([]provider.Leftover, error) {
	if h.looked != nil {
		h.looked()
	}
	return slices.Clone(h.left[host]), h.err
}

func (h *hoard) Reclaim(_ context.Context, host string, chosen []provider.Leftover, dryRun bool) ([]provider.Reclaimed, error) {
	if h.before != nil {
		h.before()
	}
	h.asked, h.dry = append(h.asked, chosen...), dryRun
	var results []provider.Reclaimed
	for _, l := range chosen {
		kept := h.kept[l.Object]
		results = append(results, provider.Reclaimed{Leftover: l, Kept: kept, Removed: kept == "", Moot: h.moot[l.Object]})
		if kept == "" && !dryRun {
			h.left[host] = slices.DeleteFunc(h.left[host], func(o provider.Leftover) bool { return o == l })
		}
	}
	return results, nil
}

// log is a Reporter.
type log []string

func (l *log) Collected(entry, host string, what provider.Leftover, dryRun bool) {
	*l = append(*l, fmt.Sprintf("collected %s/%s %s dry=%t", entry, host, what.Object, dryRun))
}

func (l *log) Kept(entry, host string, what provider.Leftover, why string) {
	*l = append(*l, fmt.Sprintf("kept %s/%s %s: %s", entry, host, what.Object, why))
}

func (l *log) Failed(entry, host string, err error) {
	*l = append(*l, fmt.Sprintf("failed %s/%s: %v", entry, host, err))
}

func (l *log) Seen(entry string, foreign int, stopped bool) {
	if foreign != 0 || stopped {
		*l = append(*l, fmt.Sprintf("seen %s: foreign %d, stopped %t", entry, foreign, stopped))
	}
}

func (l *log) Stopped(entry string, stop v1alpha1.CollectorStop) {
	*l = append(*l, fmt.Sprintf("stopped %s: %s, %d of at most %d", entry, stop.Reason, stop.Instances, stop.Allowed))
}

func (l *log) Resumed(entry, why string) { *l = append(*l, fmt.Sprintf("resumed %s: %s", entry, why)) }

func (l *log) Vanished(entry, host string, p Proxy) {
	*l = append(*l, fmt.Sprintf("vanished %s/%s: %s", entry, host, p.Name))
}

// paper is a Ledger.
type paper struct {
	mu      sync.Mutex
	records map[string]Record
	err     error
	saved   int
}

func (p *paper) Load(_ context.Context, entry string) (Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[entry], p.err
}

func (p *paper) Save(_ context.Context, entry string, status v1alpha1.CollectorStatus) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	r := p.records[entry]
	r.Status = status
	p.records[entry] = r
	p.saved++
	return nil
}

func newCollector(mode Mode, h *hoard) (*Collector, *log, *time.Time) {
	now, said := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), &log{}
	c := &Collector{
		Proxies: func(context.Context) (Proxies, error) { return NewProxies(nil) }, Ledger: &paper{records: map[string]Record{}},
		Wake: func(entry, uid string) { *said = append(*said, "woken "+entry+" "+uid) },
		Providers: func() map[string]provider.Provider {
			return map[string]provider.Provider{"home": h, "other": struct{ provider.Provider }{h}}
		},
		Mode: mode, Grace: time.Hour, Report: said, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	}
	return c, said, &now
}

func readyHost(name string) provider.HostState {
	return provider.HostState{Name: name, Ready: true, Reason: provider.HostReady}
}

func TestSweeps(t *testing.T) {
	old := provider.Leftover{Kind: provider.LeftoverUnfinished, Object: "old", Bytes: 7}
	used := provider.Leftover{Kind: provider.LeftoverUnwanted, Object: "used"}
	strange := provider.Leftover{Kind: provider.LeftoverUnreadable, Object: "strange", Why: "no version"}
	setup := func(mode Mode) (*hoard, *Collector, *log, *time.Time) {
		h := &hoard{
			hosts: []provider.HostState{readyHost("h1"), {Name: "h2", Reason: provider.HostUnreachable}},
			left:  map[string][]provider.Leftover{"h1": {old, used, strange}, "h2": {old}}, kept: map[string]string{"used": "in use by domain x"},
		}
		c, said, now := newCollector(mode, h)
		return h, c, said, now
	}
	want := func(t *testing.T, said *log, lines ...string) {
		t.Helper()
		if !slices.Equal(lines, *said) {
			t.Error(cmp.Diff(lines, []string(*said)))
		}
		*said = nil
	}
	t.Run("after the grace period, and no sooner", func(t *testing.T) {
		h, c, said, now := setup(On)
		c.Sweep(t.Context())
		*now = now.Add(time.Hour - time.Second)
		c.Sweep(t.Context())
		want(t, said)
		*now = now.Add(time.Second)
		c.Sweep(t.Context())
		want(t, said, "kept home/h1 strange: no version", "collected home/h1 old dry=false")
		if !slices.Equal(h.asked, []provider.Leftover{old, used}) {
			t.Errorf("asked for %+v", h.asked)
		}
		*now = now.Add(time.Hour - time.Second)
		c.Sweep(t.Context())
		if len(h.asked) != 2 {
			t.Errorf("what was kept was asked for again too soon: %+v", h.asked)
		}
	})
	t.Run("a dry run", func(t *testing.T) {
		h, c, said, now := setup(DryRun)
		c.Sweep(t.Context())
		*now = now.Add(time.Hour)
		c.Sweep(t.Context())
		want(t, said, "kept home/h1 strange: no version", "collected home/h1 old dry=true")
		if !h.dry || len(h.left["h1"]) != 3 {
			t.Errorf("%+v", h)
		}
	})
	t.Run("a host that fails", func(t *testing.T) {
		h, c, said, now := setup(On)
		c.Sweep(t.Context())
		*now = now.Add(time.Hour)
		h.err = errors.New("the link is dead")
		c.Sweep(t.Context())
		want(t, said, "failed home/h1: the link is dead")
		if len(h.asked) != 0 {
			t.Errorf("%+v", h.asked)
		}
	})
	t.Run("a full pool is swept", func(t *testing.T) {
		h, c, said, now := setup(On)
		h.hosts = []provider.HostState{{Name: "h2", Reason: provider.HostDegraded}}
		c.Sweep(t.Context())
		*now = now.Add(time.Hour)
		c.Sweep(t.Context())
		want(t, said, "collected home/h2 old dry=false")
	})
}

// Whatever comes and goes: what is due was there, unchanged, in every sweep of the last grace period.
func TestDueWasThereAllTheTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	at, start := place{"home", "h1"}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const grace = 10 * time.Minute
	for range 200 {
		var s sightings
		since := map[provider.Leftover]time.Time{}
		now := start
		for range 60 {
			now = now.Add(time.Duration(r.IntN(240)-20) * time.Second) // clocks are set back, too
			var found []provider.Leftover
			for i := range 6 {
				if r.IntN(8) > 0 {
					found = append(found, provider.Leftover{Kind: provider.LeftoverUnfinished, Object: fmt.Sprint(i), Bytes: int64(r.IntN(12) / 11)})
				}
			}
			for l := range since {
				if !slices.Contains(found, l) {
					delete(since, l)
				}
			}
			for _, l := range found {
				if first, ok := since[l]; !ok || first.After(now) {
					since[l] = now
				}
			}
			for _, l := range s.due(at, found, now, grace) {
				if now.Sub(since[l]) < grace {
					t.Fatalf("%+v is due after %s", l, now.Sub(since[l]))
				}
			}
		}
	}
}

func TestAClockThatWasSetBackDelaysForOneGracePeriod(t *testing.T) {
	at, now, found := place{"home", "h1"}, time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC), []provider.Leftover{{Object: "old"}}
	var s sightings
	s.due(at, found, now, time.Hour)
	now = now.AddDate(-10, 0, 0)
	s.due(at, found, now, time.Hour)
	if due := s.due(at, found, now.Add(time.Hour-1), time.Hour); len(due) != 0 {
		t.Errorf("%+v is due too soon", due)
	}
	if due := s.due(at, found, now.Add(time.Hour), time.Hour); len(due) != 1 {
		t.Error("it has escaped for ten years")
	}
}

func TestStartSweepsUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hoard{hosts: []provider.HostState{readyHost("h1")}, left: map[string][]provider.Leftover{"h1": {{Kind: provider.LeftoverUnfinished, Object: "old"}}}}
		c, said, _ := newCollector(On, h)
		c.Now = time.Now
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Start(ctx) }()
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || len(*said) != 1 {
			t.Errorf("%v, %q", err, *said)
		}
	})
	off := &Collector{Mode: Off, Providers: func() map[string]provider.Provider { panic("swept") }}
	if err := off.Start(t.Context()); err != nil {
		t.Error(err)
	}
}
