// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestBrake(t *testing.T) {
	t.Run("X18: more than a tenth of an entry's instances stops the collector, with everything else of the entry", func(t *testing.T) {
		s := newStage(t, 30, 4)
		s.host.left["h1"] = append(s.host.left["h1"], provider.Leftover{Kind: provider.LeftoverUnfinished, Object: "old"})
		s.grace()
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 4 of at most 3")
		s.pass(s.Grace)
		s.want("seen home: foreign 0, stopped true")
		if len(s.host.asked) != 0 {
			t.Errorf("asked for %+v", s.host.asked)
		}
		if stop := s.stop(); len(stop.Names) != 4 || stop.Names[0] != "h1/vm-000" || stop.Token == "" {
			t.Errorf("%+v", stop)
		}
	})
	t.Run("X18: a tenth goes, and one of few", func(t *testing.T) {
		for _, c := range []struct{ instances, lost int }{{30, 3}, {1, 1}, {9, 1}, {0, 0}} {
			s := newStage(t, c.instances, c.lost)
			s.proxies = append(s.proxies, Proxy{UID: uidOf(99)})
			s.grace()
			if s.left() != c.instances-c.lost {
				t.Errorf("of %+v %d are left: %q", c, s.left(), *s.said)
			}
		}
	})
	t.Run("X18: what trickles in within 24 hours is added up, over restarts", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.grace()
		s.want("collected home/h1 vm-000 dry=false")
		s.again()
		s.proxies = s.proxies[1:]
		s.grace()
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 1 of at most 1")
		if s.left() != 11 {
			t.Errorf("%d are left", s.left())
		}
	})
	t.Run("X18: what was recorded and did not go, for the operator was killed, is not counted twice", func(t *testing.T) {
		s := newStage(t, 12, 1)
		i := slices.IndexFunc(s.host.left["h1"], func(l provider.Leftover) bool { return l.Object == "vm-000" })
		s.paper.records["home"] = Record{Status: v1alpha1.CollectorStatus{
			Removed: counted(nil, *s.now, 1), Pending: []string{nameOf("h1", s.host.left["h1"][i].UID)},
		}}
		s.grace()
		s.want("collected home/h1 vm-000 dry=false")
		if r := s.paper.records["home"].Status; removedIn(r.Removed, *s.now) != 1 || len(r.Pending) != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("X18: after 24 hours as many may go again", func(t *testing.T) {
		s := newStage(t, 12, 1)
		s.grace()
		*s.said = nil
		s.pass(24 * time.Hour)
		s.proxies = s.proxies[1:]
		s.grace()
		s.want("collected home/h1 vm-001 dry=false")
	})
	t.Run("X18: any at all stops it while the API lists no Proxy", func(t *testing.T) {
		s := newStage(t, 100, 1)
		s.proxies = nil
		s.host.left["h1"] = s.host.left["h1"][:1]
		s.grace()
		s.want("seen home: foreign 0, stopped true", "stopped home: NoProxies, 1 of at most 10")
	})
	t.Run("X18: what is not due yet counts, so that a lost API is seen before the first is gone", func(t *testing.T) {
		s := newStage(t, 10, 1)
		s.pass(0)
		s.proxies = s.proxies[5:]
		s.pass(s.Grace)
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 6 of at most 1")
	})
	t.Run("X18: an approval lets exactly those go", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		*s.said = nil
		s.approve("something else")
		s.pass(time.Minute)
		s.want("seen home: foreign 0, stopped true")
		s.approve(s.stop().Token)
		s.pass(time.Minute)
		s.want("resumed home: somebody approved that 4 instances without a Proxy are removed", "collected home/h1 vm-000 dry=false",
			"collected home/h1 vm-001 dry=false", "collected home/h1 vm-002 dry=false", "collected home/h1 vm-003 dry=false")
	})
	t.Run("X18: an old approval does not approve a later stop, not even of the same instances", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		old := s.stop().Token
		s.approve(old)
		held := slices.Clone(s.host.left["h1"])
		s.pass(time.Minute)
		s.host.left["h1"] = held // a host that was restored
		*s.said = nil
		s.grace()
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 4 of at most 1")
		if s.stop().Token == old {
			t.Error("the token is the old one")
		}
	})
	t.Run("X18: one more instance is not approved", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		s.approve(s.stop().Token)
		s.proxies = s.proxies[1:]
		*s.said = nil
		s.pass(time.Minute)
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 5 of at most 1")
	})
	t.Run("X18: one that went meanwhile takes nothing from an approval, and a failure in the middle neither", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		s.approve(s.stop().Token)
		s.host.left["h1"] = s.host.left["h1"][1:]
		s.host.kept["vm-002"] = "in use by domain x"
		*s.said = nil
		s.pass(time.Minute)
		s.want("resumed home: somebody approved that 4 instances without a Proxy are removed", "collected home/h1 vm-001 dry=false",
			"kept home/h1 vm-002: in use by domain x", "collected home/h1 vm-003 dry=false")
		s.host.kept = nil
		s.pass(s.Grace)
		s.want("collected home/h1 vm-002 dry=false")
	})
	t.Run("X18: a stop holds over a restart, and so does its token", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		token := s.stop().Token
		s.again()
		s.pass(time.Minute)
		s.want("seen home: foreign 0, stopped true")
		s.approve(token)
		s.grace()
		if s.left() != 6 {
			t.Errorf("%d are left: %q", s.left(), *s.said)
		}
	})
	t.Run("X18: when the Proxies are back, it goes on by itself", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		for n := range 4 {
			s.proxies = append(s.proxies, Proxy{UID: uidOf(n)})
		}
		*s.said = nil
		s.pass(time.Minute)
		s.want("resumed home: no instance without a Proxy is left")
		s.pass(s.Grace)
		s.want()
	})
	t.Run("X18: it stays stopped while some are left, even if as many could go", func(t *testing.T) {
		s := newStage(t, 10, 4)
		s.grace()
		for n := range 3 {
			s.proxies = append(s.proxies, Proxy{UID: uidOf(n)})
		}
		*s.said = nil
		s.pass(time.Minute)
		s.want("seen home: foreign 0, stopped true", "stopped home: TooManyLeftovers, 1 of at most 1")
	})
	t.Run("X18: another entry is not concerned", func(t *testing.T) {
		s := newStage(t, 10, 4)
		well := &hoard{hosts: []provider.HostState{readyHost("w1")}, left: map[string][]provider.Leftover{"w1": {{Kind: provider.LeftoverUnfinished, Object: "old"}}}}
		s.Providers = func() map[string]provider.Provider { return map[string]provider.Provider{"well": well} }
		s.grace()
		s.want("collected well/w1 old dry=false")
	})
}

func TestWhatIsRemovedIsRecordedFirst(t *testing.T) {
	s := newStage(t, 30, 3)
	s.pass(0)
	*s.now = s.now.Add(s.Grace)
	recorded := -1
	s.host.before = func() { recorded = removedIn(s.paper.records["home"].Status.Removed, *s.now) }
	s.Sweep(t.Context())
	if recorded != 3 || s.left() != 27 {
		t.Errorf("%d were recorded before the removal, and %d are left", recorded, s.left())
	}
}

func TestTheRecordIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var record Record
	for range 5000 {
		now = now.Add(time.Duration(r.IntN(5400)-300) * time.Second)
		if r.IntN(500) == 0 {
			now = now.AddDate(0, 0, -r.IntN(400)) // a clock that is set back
		}
		next := record.next(now)
		if before, after := within(record.Status.Removed, now), removedIn(next.Removed, now); after < before {
			t.Fatalf("%d removals of the last day became %d", before, after)
		}
		next.Removed = counted(next.Removed, now, int32(r.IntN(3)))
		if len(next.Removed) > 32 {
			t.Fatalf("%d hours are kept", len(next.Removed))
		}
		record.Status = next
	}
}

// within are the removals of the last 24 hours, those in the future included.
func within(removed []v1alpha1.RemovedInstances, now time.Time) (n int) {
	for _, r := range removed {
		if now.Sub(r.Hour.Time) < 24*time.Hour {
			n += int(r.Count)
		}
	}
	return n
}

func TestWhatAStopSays(t *testing.T) {
	stop := v1alpha1.CollectorStop{
		Since: metav1.Now(), Reason: v1alpha1.ReasonTooManyLeftovers, Token: "0123456789abcdef", Instances: 5, Allowed: 1,
		Names: []string{"h1/a", "h1/b", "h1/c", "h1/d", "h1/e"},
	}
	var conditions []metav1.Condition
	show(&conditions, "kvm2-home", &stop, time.Now())
	if len(conditions) != 1 {
		t.Fatal(conditions)
	}
	for _, part := range []string{"5 instances", "at most 1", "h1/a, h1/b, h1/c and 2 more",
		"kubectl annotate --overwrite providerhealth kvm2-home egressproxies.dev/approve-collection=0123456789abcdef"} {
		if !strings.Contains(conditions[0].Message, part) {
			t.Errorf("%q is not in %q", part, conditions[0].Message)
		}
	}
	show(&conditions, "kvm2-home", nil, time.Now())
	if len(conditions) != 0 {
		t.Error(conditions)
	}
}

func TestTokensDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, entry := range []string{"a", "b"} {
		for _, reason := range []string{v1alpha1.ReasonNoProxies, v1alpha1.ReasonTooManyLeftovers} {
			for seconds := range int64(3) {
				for n := range 4 {
					var names []string
					for i := range n {
						names = append(names, fmt.Sprint("h/", i))
					}
					of := fmt.Sprint(entry, reason, seconds, names)
					token := token(entry, metav1.Unix(seconds, 0), reason, names)
					if other, ok := seen[token]; ok || len(token) != tokenLength {
						t.Errorf("%s and %s have the token %q", of, other, token)
					}
					seen[token] = of
				}
			}
		}
	}
}
