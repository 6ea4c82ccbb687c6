// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// uidOf the n-th Proxy.
func uidOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func instanceOf(uid string) provider.Leftover {
	return provider.Leftover{Kind: provider.LeftoverInstance, Object: "vm-" + uid[len(uid)-3:], UID: provider.CompactUID(uid)}
}

func diskOf(uid string) provider.Leftover {
	return provider.Leftover{Kind: provider.LeftoverDisk, Object: "vm-" + uid[len(uid)-3:] + ".qcow2", UID: provider.CompactUID(uid)}
}

// stage is one entry with one host, and an API.
type stage struct {
	*Collector
	t       *testing.T
	host    *hoard
	said    *log
	now     *time.Time
	paper   *paper
	proxies []Proxy
	apiErr  error
}

// newStage has instances of so many Proxies, the first of which the API does not list.
func newStage(t *testing.T, instances, lost int) *stage {
	t.Helper()
	h := &hoard{hosts: []provider.HostState{readyHost("h1")}, left: map[string][]provider.Leftover{}, kept: map[string]string{}, moot: map[string]bool{}}
	s := &stage{t: t, host: h}
	s.Collector, s.said, s.now = newCollector(On, h)
	s.paper = s.Ledger.(*paper)
	s.Proxies = func(context.Context) (Proxies, error) {
		all, err := NewProxies(s.proxies)
		return all, errors.Join(err, s.apiErr)
	}
	h.hosts[0].Instances = instances
	for n := range instances {
		h.left["h1"] = append(h.left["h1"], instanceOf(uidOf(n)))
		if n >= lost {
			s.proxies = append(s.proxies, Proxy{UID: uidOf(n), Namespace: "team", Name: fmt.Sprintf("p%d", n), Entry: "home", Host: "h1"})
		}
	}
	return s
}

// pass lets time go by, and sweeps.
func (s *stage) pass(d time.Duration) {
	*s.now = s.now.Add(d)
	s.Sweep(s.t.Context())
}

// grace sweeps twice, a grace period apart.
func (s *stage) grace() {
	s.pass(time.Minute)
	s.pass(s.Grace)
}

func (s *stage) want(lines ...string) {
	s.t.Helper()
	if !slices.Equal(lines, *s.said) {
		s.t.Error(cmp.Diff(lines, []string(*s.said)))
	}
	*s.said = nil
}

func (s *stage) stop() v1alpha1.CollectorStop {
	s.t.Helper()
	stop := s.paper.records["home"].Status.Stopped
	if stop == nil {
		s.t.Fatal("the collector is not stopped")
	}
	return *stop
}

func (s *stage) approve(token string) {
	r := s.paper.records["home"]
	r.Approval = token
	s.paper.records["home"] = r
}

func (s *stage) left() int { return len(s.host.left["h1"]) }

// again is the operator after a restart.
func (s *stage) again() {
	next, said, now := newCollector(s.Mode, s.host)
	*now = *s.now
	next.Proxies, next.Ledger = s.Proxies, s.paper
	s.Collector, s.said, s.now = next, said, now
}

func TestInstancesWithoutAProxy(t *testing.T) {
	t.Run("go after the grace period, and those of Proxies stay", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.pass(0)
		s.pass(s.Grace - time.Second)
		s.want()
		s.pass(time.Second)
		s.want("collected home/h1 vm-000 dry=false")
		if s.left() != 11 {
			t.Errorf("%d are left", s.left())
		}
	})
	t.Run("disks without a domain, too", func(t *testing.T) {
		s := newStage(t, 12, 0)
		s.host.left["h1"] = append(s.host.left["h1"], diskOf(uidOf(77)), diskOf(uidOf(1)))
		s.grace()
		s.want("collected home/h1 vm-077.qcow2 dry=false")
	})
	t.Run("a Proxy in another namespace, of another entry, on another host, or being deleted owns its instance", func(t *testing.T) {
		s := newStage(t, 12, 3)
		s.proxies = append(s.proxies, Proxy{UID: uidOf(0), Namespace: "other", Entry: "renamed"}, Proxy{UID: uidOf(1), Entry: "home", Host: "h9"},
			Proxy{UID: uidOf(2), Deleting: true})
		s.grace()
		s.want()
	})
	// Of X11, which is proven on the real host.
	t.Run("a Proxy that comes back while the host is asked keeps its instance", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.pass(0)
		s.host.looked = func() { s.proxies = append(s.proxies, Proxy{UID: uidOf(0)}) }
		s.pass(s.Grace)
		s.want()
		if s.left() != 12 {
			t.Errorf("%d are left", s.left())
		}
	})
	t.Run("a Proxy that comes back begins the grace period anew", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.pass(0)
		s.proxies = append(s.proxies, Proxy{UID: uidOf(0)})
		s.pass(s.Grace - time.Minute)
		s.proxies = s.proxies[:len(s.proxies)-1]
		s.pass(time.Minute)
		s.pass(s.Grace - time.Minute)
		s.want()
	})
	// X13 is proven on the real host.
	t.Run("what is retained stays, for ever, and is no leftover", func(t *testing.T) {
		s := newStage(t, 12, 4)
		for n := range 4 {
			s.host.left["h1"][n].Retained = true
		}
		for range 5 {
			s.grace()
		}
		s.want()
		if len(s.host.asked) != 0 {
			t.Errorf("asked for %+v", s.host.asked)
		}
	})
	t.Run("a dry run removes nothing, and counts nothing", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.Mode = DryRun
		s.grace()
		s.want("collected home/h1 vm-000 dry=true")
		if s.left() != 12 || len(s.paper.records["home"].Status.Removed) != 0 {
			t.Errorf("%d left, %+v", s.left(), s.paper.records["home"])
		}
	})
	for name, spoil := range map[string]func(*stage){
		"the Proxies cannot be read":               func(s *stage) { s.apiErr = errors.New("the API is away") },
		"a Proxy's UID cannot be understood":       func(s *stage) { s.proxies = append(s.proxies, Proxy{Name: "odd", UID: "x"}) },
		"the record cannot be read":                func(s *stage) { s.paper.err = errors.New("the API is away") },
		"the host cannot be listed to the end":     func(s *stage) { s.host.err = errors.New("the link is dead") },
		"there is no ProviderHealth for the entry": func(s *stage) { s.paper.err = ErrNoRecord },
	} {
		t.Run("nothing goes while "+name, func(t *testing.T) {
			s := newStage(t, 12, 1)
			s.host.left["h1"] = append(s.host.left["h1"], provider.Leftover{Kind: provider.LeftoverUnfinished, Object: "old"})
			s.pass(0)
			*s.now = s.now.Add(s.Grace)
			spoil(s)
			s.Sweep(t.Context())
			if len(s.host.asked) != 0 || len(*s.said) != 1 || !strings.HasPrefix((*s.said)[0], "failed home/") {
				t.Errorf("asked for %+v; said %q", s.host.asked, *s.said)
			}
		})
	}
	t.Run("what is kept is told once a grace period, unless it is moot", func(t *testing.T) {
		s := newStage(t, 40, 2)
		s.host.kept = map[string]string{"vm-000": "in use by domain x", "vm-001": "it is gone"}
		s.host.moot = map[string]bool{"vm-001": true}
		s.grace()
		s.pass(s.Grace / 2)
		s.want("kept home/h1 vm-000: in use by domain x")
		if removed := s.paper.records["home"].Status.Removed; len(removed) != 0 {
			t.Errorf("what was kept counts as removed: %+v", removed)
		}
	})
}

func TestForeignLeftoversAreCountedAndNamed(t *testing.T) {
	s := newStage(t, 1, 0)
	long := strings.Repeat("x", 300)
	s.host.left["h1"] = append(s.host.left["h1"], provider.Leftover{Kind: provider.LeftoverForeign, Object: "of-other", Entry: "other"})
	for n := range 20 {
		s.host.left["h1"] = append(s.host.left["h1"], provider.Leftover{Kind: provider.LeftoverForeign, Object: fmt.Sprintf("%02d-%s", n, long)})
	}
	s.grace()
	s.want("seen home: foreign 20, stopped false", "seen home: foreign 20, stopped false")
	foreign := s.paper.records["home"].Status.Foreign
	if foreign == nil || foreign.Count != 20 || len(foreign.Names) != 16 || len(foreign.Names[0]) != 256 || !strings.HasPrefix(foreign.Names[0], "h1/00-x") {
		t.Errorf("%+v", foreign)
	}
	if len(s.host.asked) != 0 {
		t.Errorf("asked for %+v", s.host.asked)
	}
}

func TestProxiesAreToldThatTheirInstanceVanished(t *testing.T) {
	s := newStage(t, 2, 0)
	old, young := s.now.Add(-time.Minute), s.now.Add(time.Hour)
	s.proxies = append(s.proxies,
		Proxy{UID: uidOf(50), Name: "vanished", Entry: "home", Host: "h1", Provisioned: old},
		Proxy{UID: uidOf(51), Name: "being-made", Entry: "home", Host: "h1"},
		Proxy{UID: uidOf(52), Name: "made-meanwhile", Entry: "home", Host: "h1", Provisioned: young},
		Proxy{UID: uidOf(53), Name: "going", Entry: "home", Host: "h1", Provisioned: old, Deleting: true},
		Proxy{UID: uidOf(54), Name: "elsewhere", Entry: "home", Host: "h2", Provisioned: old},
		Proxy{UID: uidOf(55), Name: "of-another", Entry: "other", Host: "h1", Provisioned: old})
	s.proxies[0].Provisioned = old
	s.pass(0)
	s.want("vanished home/h1: vanished", "woken home "+uidOf(50))
}

// Whatever the ways of writing a UID are, and whatever comes and goes, no instance of a Proxy that the API lists is ever asked for.
func TestUIDs(t *testing.T) {
	t.Run("E2: no instance of a live Proxy is collected, however its UID is written", func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		write := func(uid string) string {
			for range r.IntN(4) {
				switch r.IntN(4) {
				case 0:
					uid = strings.ToUpper(uid)
				case 1:
					uid = strings.ReplaceAll(uid, "-", "")
				case 2:
					uid = " \t" + uid + "\n"
				case 3:
					uid = strings.ToLower(uid)
				}
			}
			return uid
		}
		for range 300 {
			s := newStage(t, 0, 0)
			s.host.hosts[0].Instances = 10_000 // the brake is not what holds it
			alive := map[string]bool{}
			for n := range 1 + r.IntN(12) {
				id := uuid.New()
				if n == 0 || r.IntN(3) > 0 {
					alive[provider.CompactUID(id.String())] = true
					s.proxies = append(s.proxies, Proxy{UID: write(id.String())})
				}
				l := provider.Leftover{Kind: provider.LeftoverInstance, Object: fmt.Sprint(n), UID: write(id.String())}
				if r.IntN(2) == 0 {
					l.Kind = provider.LeftoverDisk
				}
				s.host.left["h1"] = append(s.host.left["h1"], l)
			}
			instances := s.left()
			s.grace()
			for _, l := range s.host.asked {
				if alive[provider.CompactUID(l.UID)] {
					t.Fatalf("%+v is collected, though it is of one of %+v", l, s.proxies)
				}
			}
			if len(s.host.asked) != instances-len(alive) {
				t.Fatalf("%d of %d instances are collected, and %d have a Proxy", len(s.host.asked), instances, len(alive))
			}
		}
	})
}
