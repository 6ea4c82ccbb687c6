// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// failing answers calls of one name with an error of a kind.
func failing(call string, kind provider.Kind) func(string, provider.InstanceRef) error {
	return func(c string, ref provider.InstanceRef) error {
		if c != call {
			return nil
		}
		return &provider.Error{Kind: kind, Host: ref.Host, Object: "domain of " + ref.UID, Message: "scripted", Next: "mend it", Progress: 47}
	}
}

func TestEveryFailureOfCreateIsShownAndPasses(t *testing.T) {
	reasons := map[provider.Kind]string{
		provider.Transient: v1alpha1.ReasonTransient, provider.NotFound: v1alpha1.ReasonTransient, provider.Capacity: v1alpha1.ReasonCapacity,
		provider.Unauthorized: v1alpha1.ReasonUnauthorized, provider.Permanent: v1alpha1.ReasonPermanent, provider.Conflict: v1alpha1.ReasonConflict,
		provider.InProgress: v1alpha1.ReasonFetchingImage,
	}
	stalls := map[provider.Kind]bool{provider.Unauthorized: true, provider.Permanent: true, provider.Conflict: true}
	w := newWorld(t)
	for _, kind := range provider.Kinds() {
		t.Run("T1: "+kind.String()+" is a condition, and does not latch", func(t *testing.T) {
			w.provider.change(func() { w.provider.fail = failing("create", kind) })
			p := w.proxy("p-"+strings.ToLower(kind.String()), func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: "h1"} })
			w.create(p)
			p = w.wait(p, "shown", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, reasons[kind]))
			for _, part := range []string{"h1", "domain of", "scripted", "mend it"} {
				if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), part) {
					t.Errorf("the condition does not say %q: %s", part, describe(p))
				}
			}
			if got := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled); got != stalls[kind] {
				t.Errorf("Stalled is %v: %s", got, describe(p))
			}
			if got := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReconciling); got == stalls[kind] {
				t.Errorf("Reconciling is %v: %s", got, describe(p))
			}
			if kind == provider.InProgress && p.Status.Progress != 40 {
				t.Errorf("progress %d, want the step 40", p.Status.Progress)
			}
			calls := w.provider.count("create h1")
			w.wait(p, "tried again", func(*v1alpha1.Proxy) bool { return w.provider.count("create h1") > calls })
			w.provider.change(func() { w.provider.fail = nil })
			w.wait(p, "Ready", ready)
		})
	}
}

func TestAFailedReadDemotesNobody(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	endpoint := p.Status.Endpoint
	for _, kind := range []provider.Kind{provider.Transient, provider.Unauthorized, provider.Capacity, provider.Permanent, provider.InProgress} {
		t.Run(kind.String(), func(t *testing.T) {
			w.provider.change(func() { w.provider.fail = failing("get", kind) })
			w.provider.tell(string(p.UID))
			reason := kind.String()
			if kind == provider.InProgress {
				reason = v1alpha1.ReasonFetchingImage
			}
			p := w.wait(p, "shown", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, reason))
			if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), "last known state") {
				t.Error(describe(p))
			}
			w.holds(p, "Ready with its addresses", func(p *v1alpha1.Proxy) bool {
				return ready(p) && p.Status.Endpoint == endpoint && len(p.Status.Addresses) == 1 && p.Status.ProviderID != ""
			})
		})
	}
	t.Run("no address", func(t *testing.T) {
		w.provider.change(func() { w.provider.fail, w.provider.mute = nil, true })
		w.provider.tell(string(p.UID))
		w.wait(p, "running", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning))
		w.holds(p, "Ready with its addresses", func(p *v1alpha1.Proxy) bool { return ready(p) && p.Status.Endpoint == endpoint })
	})
}

func TestWhatTheHostSaysCounts(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	t.Run("a paused guest is out of rotation, and is not replaced", func(t *testing.T) {
		instance := w.provider.one()
		w.provider.change(func() {
			instance.State, instance.StateReason = provider.StatePaused, "paused: I/O error"
			w.provider.fail = failing("create", provider.Transient)
		})
		w.provider.tell(string(p.UID))
		p := w.wait(p, "paused", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused))
		if !strings.Contains(message(p, v1alpha1.ConditionReady), "I/O error") {
			t.Error(describe(p))
		}
		if w.provider.one() != instance || w.provider.count("delete "+instance.Host) != 0 {
			t.Error("the instance was replaced")
		}
		w.provider.change(func() { w.provider.fail = nil })
		w.wait(p, "Ready", ready)
	})
	t.Run("a stopped guest is started", func(t *testing.T) {
		instance := w.provider.one()
		w.provider.change(func() { instance.State = provider.StateStopped })
		w.provider.tell(string(p.UID))
		w.wait(p, "running", func(*v1alpha1.Proxy) (running bool) {
			w.provider.change(func() { running = instance.State == provider.StateRunning })
			return running
		})
		w.wait(p, "Ready", ready)
	})
	t.Run("an instance that is gone is made again", func(t *testing.T) {
		old := w.provider.one()
		old.proxy.Close()
		w.provider.change(func() { clear(w.provider.instances) })
		w.provider.tell(string(p.UID))
		p := w.wait(p, "Ready at another address", func(p *v1alpha1.Proxy) bool { return ready(p) && p.Status.Endpoint != old.proxy.Address })
		if p.Status.ExitIPs[0] != w.provider.one().Addresses[0].String() {
			t.Errorf("the exit is the old one: %s", describe(p))
		}
	})
	t.Run("somebody else's instance of that name is no instance", func(t *testing.T) {
		w.provider.change(func() { w.provider.fail = failing("get", provider.Conflict) })
		w.provider.tell(string(p.UID))
		w.wait(p, "conflict", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConflict))
	})
}

func TestPinnedIsNotMadeAnew(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", func(s *v1alpha1.ProxySpec) { s.Mode = v1alpha1.ModePinned })
	creates := w.provider.count("create " + p.Status.Host)
	instance := w.provider.one()
	w.provider.change(func() { instance.State, instance.StateReason = provider.StateCrashed, "crashed: panicked" })
	w.provider.tell(string(p.UID))
	p = w.wait(p, "down", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDomainDown))
	if !strings.Contains(message(p, v1alpha1.ConditionStalled), "panicked") || w.provider.count("create "+p.Status.Host) != creates {
		t.Error(describe(p))
	}
}

func TestNoAddress(t *testing.T) {
	w := newWorld(t)
	w.provider.change(func() { w.provider.mute = true })
	p := w.proxy("p", nil)
	w.create(p)
	p = w.wait(p, "booting", has(v1alpha1.ConditionHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNoAddress))
	if !has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonBooting)(p) || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReconciling) {
		t.Error(describe(p))
	}
	w.provider.change(func() { w.provider.mute = false })
	w.wait(p, "Ready", ready)
}
