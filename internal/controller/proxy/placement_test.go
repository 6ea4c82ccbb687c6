// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// TestDeathWhileMovingToAnotherHost kills the operator at each provider call of a creation whose first host turns out to be full, before
// and after the call's effect, and starts another.
func TestDeathWhileMovingToAnotherHost(t *testing.T) {
	for at := 1; at <= 8; at++ {
		for _, after := range []bool{false, true} {
			when := map[bool]string{false: "before", true: "after"}[after]
			t.Run(fmt.Sprintf("X17: killed %s provider call %d, one instance and no leftover", when, at), func(t *testing.T) {
				w := newWorld(t)
				w.provider.change(func() {
					w.provider.hosts[1].Instances = 5 // so that h1 is tried first
					w.provider.full["h1"] = true
					w.provider.before = func(call string, ref provider.InstanceRef) { w.checkPlacedBefore(call, ref) }
				})
				w.provider.death.plan(at, after)
				p := w.proxy("p", nil)
				w.create(p)
				select {
				case <-w.provider.death.died:
				case <-time.After(eventually):
					t.Fatalf("there was no provider call %d", at)
				}
				w.stop()
				w.provider.death.revive()
				w.start()
				p = w.wait(p, "Ready", ready)
				if one := w.provider.one(); one.Host != "h2" || p.Status.Host != "h2" {
					t.Errorf("the instance is on %s, the status says %s", one.Host, p.Status.Host)
				}
				w.provider.change(func() {
					if len(w.provider.leftovers) != 0 {
						t.Errorf("left behind: %v", w.provider.leftovers)
					}
				})
			})
		}
	}
}

// checkPlacedBefore fails where a host is changed that the API server does not hold as the Proxy's.
func (w *world) checkPlacedBefore(call string, ref provider.InstanceRef) {
	if call != "create" {
		return
	}
	var list v1alpha1.ProxyList
	if err := w.client.List(context.Background(), &list, client.InNamespace(w.namespace)); err != nil {
		w.t.Errorf("list: %v", err)
		return
	}
	for _, p := range list.Items {
		if string(p.UID) == ref.UID && p.Status.Host != ref.Host {
			w.t.Errorf("%s on host %s, and status.host is %q", call, ref.Host, p.Status.Host)
		}
	}
}

// outdated reads Proxies as they were.
type outdated struct {
	client.Client
	proxy *v1alpha1.Proxy
}

func (o outdated) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if p, ok := into.(*v1alpha1.Proxy); ok {
		o.proxy.DeepCopyInto(p)
		return nil
	}
	return o.Client.Get(ctx, key, into, opts...)
}

func TestAnOutdatedCachePlacesNothing(t *testing.T) {
	for name, cached := range map[string]string{
		"X17: the cache does not know the placement yet": "",
		"X17: the cache knows the host before this one":  "h1",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			p := w.proxy("p", nil)
			w.create(p)
			w.update(p, func(p *v1alpha1.Proxy) { p.Finalizers = []string{v1alpha1.Finalizer} })
			old := p.DeepCopy()
			old.Status.Host = cached
			p.Status.Host = "h2"
			if err := w.client.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			set := Set{File: w.file, Providers: map[string]provider.Provider{"home": w.provider}}
			r := &Reconciler{
				Client: outdated{w.client, old}, Live: w.client, Now: time.Now, Guest: w.guest, Pace: DefaultPace, Events: events.NewFakeRecorder(10),
				Probes: probe.NewScheduler(nil, 0, nil), Current: func() Set { return set },
			}
			for range 3 {
				result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
				if err != nil || result.RequeueAfter == 0 {
					t.Fatalf("%+v, %v", result, err)
				}
			}
			if n := w.provider.count("create h1") + w.provider.count("create h2"); n != 0 {
				t.Errorf("%d creations", n)
			}
			w.holds(p, "on h2", func(p *v1alpha1.Proxy) bool { return p.Status.Host == "h2" })
			w.update(p, func(p *v1alpha1.Proxy) { p.Finalizers = nil })
		})
	}
}

func TestPlacement(t *testing.T) {
	w := newWorld(t)
	t.Run("X8: placement.host pins", func(t *testing.T) {
		p := w.made("pinned", func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: "h2"} })
		if p.Status.Host != "h2" {
			t.Error(describe(p))
		}
	})
	t.Run("pinned elsewhere before anything was made", func(t *testing.T) {
		w.provider.change(func() { w.provider.fail = failing("create", provider.Permanent) })
		p := w.proxy("repinned", func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: "h1"} })
		w.create(p)
		p = w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPermanent))
		w.provider.change(func() { w.provider.hosts[1].Ready = false })
		w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Placement.Host = "h2" })
		p = w.wait(p, "waits for it", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonPending))
		w.provider.change(func() { w.provider.fail, w.provider.hosts[1].Ready = nil, true })
		if p = w.wait(p, "Ready", ready); p.Status.Host != "h2" {
			t.Error(describe(p))
		}
		w.delete(p)
		w.waitGone(p)
	})
	t.Run("X8: spread, though all are placed at once", func(t *testing.T) {
		var all []*v1alpha1.Proxy
		for i := range 6 {
			all = append(all, w.proxy(fmt.Sprintf("s%d", i), nil))
			w.create(all[i])
		}
		counts := map[string]int{}
		for _, p := range all {
			counts[w.wait(p, "Ready", ready).Status.Host]++
		}
		if counts["h1"] < 3 || counts["h2"] < 2 {
			t.Errorf("placed as %v, with one pinned to h2 before", counts)
		}
	})
	t.Run("X8: the next host when one answers Capacity", func(t *testing.T) {
		full := func(names ...string) func() {
			return func() {
				w.provider.full = map[string]bool{}
				for _, name := range names {
					w.provider.full[name] = true
				}
			}
		}
		for _, name := range []string{"h1", "h2"} {
			w.provider.change(full(name))
			if p := w.made("not-on-"+name, nil); p.Status.Host == name {
				t.Error(describe(p))
			}
		}
		w.provider.change(full("h1", "h2"))
		p := w.proxy("full", nil)
		w.create(p)
		w.wait(p, "waits", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonCapacity))
		w.provider.change(full())
		w.wait(p, "Ready", ready)
	})
	t.Run("no host takes it, and each says why", func(t *testing.T) {
		w.provider.change(func() {
			for i := range w.provider.hosts {
				w.provider.hosts[i].Ready, w.provider.hosts[i].Reason, w.provider.hosts[i].Message = false, provider.HostUnreachable, "no route to host"
			}
		})
		p := w.proxy("waits", nil)
		w.create(p)
		p = w.wait(p, "pending", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonPending))
		for _, part := range []string{"hosts h1, h2: Unreachable: no route to host"} {
			if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), part) {
				t.Error(describe(p))
			}
		}
		w.provider.change(func() { w.provider.hosts[0].Ready = true })
		w.wait(p, "Ready", ready)
	})
}

func TestPlacementByWhatAnImageNeeds(t *testing.T) {
	large := func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "large"}} }
	t.Run("X16: a host that lacks what the image asks for is not chosen", func(t *testing.T) {
		w := newWorld(t)
		w.provider.change(func() {
			w.provider.hosts[0].Lacks = map[string]string{"large": "EFI firmware (install ovmf or edk2)"}
			w.provider.hosts[1].Instances = 5
		})
		if p := w.made("large", large); p.Status.Host != "h2" || w.provider.count("create h1") != 0 {
			t.Errorf("%d Creates on h1; %s", w.provider.count("create h1"), describe(p))
		}
		if p := w.made("tiny", nil); p.Status.Host != "h1" {
			t.Error(describe(p))
		}
		w.provider.change(func() {
			w.provider.hosts[1].Lacks = map[string]string{"large": "architecture aarch64 (the host is x86_64)"}
		})
		p := w.proxy("nowhere", large)
		w.create(p)
		p = w.wait(p, "refused", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonPermanent))
		for _, part := range []string{"h1: cannot run its image, and lacks EFI firmware", "h2: cannot run its image, and lacks architecture aarch64"} {
			if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), part) {
				t.Errorf("the condition does not say %q: %s", part, describe(p))
			}
		}
	})
	t.Run("X16: one that turns out to lack it is left for another", func(t *testing.T) {
		w := newWorld(t)
		w.provider.change(func() {
			w.provider.hosts[1].Instances = 5
			w.provider.fail = func(call string, ref provider.InstanceRef) error {
				if call == "create" && ref.Host == "h1" {
					return &provider.Error{Kind: provider.Permanent, Reason: provider.HostIncapable, Host: ref.Host, Message: "lacks EFI firmware"}
				}
				return nil
			}
		})
		if p := w.made("p", large); p.Status.Host != "h2" || w.provider.count("create h1") == 0 {
			t.Errorf("%d Creates on h1; %s", w.provider.count("create h1"), describe(p))
		}
	})
}
