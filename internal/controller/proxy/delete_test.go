// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func (w *world) delete(o client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func abandon(p *v1alpha1.Proxy) {
	p.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.AbandonConfirmed}
}

func TestFailedDelete(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []provider.Kind{provider.Transient, provider.Unauthorized, provider.Permanent, provider.Conflict, provider.Capacity, provider.InProgress} {
		t.Run("X12: "+kind.String()+" keeps the finalizer, with a condition", func(t *testing.T) {
			w.provider.change(func() { w.provider.fail = failing("delete", kind) })
			p := w.made("p-"+strings.ToLower(kind.String()), nil)
			w.delete(p)
			p = w.wait(p, "shown", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonDeleteFailed))
			for _, part := range []string{p.Status.Host, "scripted", v1alpha1.AnnotationAbandon + "=" + v1alpha1.AbandonConfirmed} {
				if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), part) {
					t.Errorf("the condition does not say %q: %s", part, describe(p))
				}
			}
			if len(p.Finalizers) != 1 {
				t.Errorf("finalizers %v", p.Finalizers)
			}
			w.provider.change(func() { w.provider.fail = nil })
			w.waitGone(p)
		})
	}
	t.Run("X12: the annotation forces it, and an event says what is left behind", func(t *testing.T) {
		w.provider.change(func() { w.provider.fail = failing("delete", provider.Transient) })
		p := w.made("given-up", nil)
		w.delete(p)
		p = w.wait(p, "shown", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonDeleteFailed))
		w.update(p, func(p *v1alpha1.Proxy) { p.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "yes"} })
		w.holds(p, "kept, for only the exact value acts", func(p *v1alpha1.Proxy) bool { return len(p.Finalizers) == 1 })
		w.update(p, abandon)
		w.waitGone(p)
		w.waitEvent(p, v1alpha1.ReasonAbandoned, p.Status.ProviderID)
	})
}

// waitEvent polls until there is an event of that reason about the Proxy whose note has that part.
func (w *world) waitEvent(p *v1alpha1.Proxy, reason, part string) {
	w.t.Helper()
	var list corev1.EventList
	w.poll("an event "+reason, func() bool {
		if err := w.client.List(w.t.Context(), &list, client.InNamespace(p.Namespace)); err != nil {
			w.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.UID == p.UID && e.Reason == reason && strings.Contains(e.Message, part) {
				return true
			}
		}
		return false
	})
}

func TestDeleteWithoutEntryOrHost(t *testing.T) {
	for name, change := range map[string]func(*config.File){
		"X20: the entry is gone": func(f *config.File) { f.Entries = f.Entries[1:] },
		"X20: the host is gone":  func(f *config.File) { f.Entries[0].Hosts = []config.Host{{Name: "other"}} },
	} {
		for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionDelete, v1alpha1.DeletionRetain} {
			t.Run(name+", with policy "+string(policy), func(t *testing.T) {
				w := newWorld(t)
				retain := func(s *v1alpha1.ProxySpec) { s.DeletionPolicy = policy }
				p, deleting := w.made("p", retain), w.made("deleting", retain)
				w.provider.change(func() {
					w.provider.fail = func(string, provider.InstanceRef) error { return errors.New("the host is down") }
				})
				w.delete(deleting)
				w.wait(deleting, "waiting", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonDeleteFailed))
				w.stop()
				w.provider.change(func() { w.provider.fail = nil })
				change(w.file)
				w.start()
				w.delete(p)
				for _, p := range []*v1alpha1.Proxy{p, deleting} {
					p = w.wait(p, "shown", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDeleteFailed))
					for _, part := range []string{"it has: ", v1alpha1.AnnotationAbandon} {
						if !strings.Contains(message(p, v1alpha1.ConditionStalled), part) {
							t.Errorf("the condition does not say %q: %s", part, describe(p))
						}
					}
					w.update(p, abandon)
					w.waitGone(p)
					w.waitEvent(p, v1alpha1.ReasonAbandoned, p.Status.ProviderID)
				}
				if left, err := w.provider.List(t.Context()); err != nil || len(left) != 2 {
					t.Errorf("%v, %+v", err, left)
				}
			})
		}
	}
	t.Run("X20: entry and host are back before anybody gave up, and the instance goes", func(t *testing.T) {
		w := newWorld(t)
		p := w.made("p", nil)
		w.stop()
		entries := w.file.Entries
		w.file.Entries = entries[1:]
		w.start()
		w.delete(p)
		w.wait(p, "shown", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDeleteFailed))
		w.stop()
		w.file.Entries = entries
		w.start()
		w.waitGone(p)
		if left, err := w.provider.List(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("%v, %+v", err, left)
		}
	})
}

func TestDeleteNeedsNoSecretAndNoValidSpec(t *testing.T) {
	t.Run("X20: deletion needs no Secret, and no valid spec", func(t *testing.T) {
		w := newWorld(t)
		p := w.made("p", nil)
		w.delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: p.Status.CredentialsSecret}})
		w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "gone"}} })
		w.delete(p)
		w.waitGone(p)
		if list, _ := w.provider.List(t.Context()); len(list) != 0 {
			t.Errorf("left: %v", list)
		}
	})
}

func TestRetain(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", func(s *v1alpha1.ProxySpec) { s.DeletionPolicy = v1alpha1.DeletionRetain })
	w.delete(p)
	w.waitGone(p)
	w.provider.one()
	if !w.provider.retained[p.Status.Host+"/"+string(p.UID)] {
		t.Error("the instance is not marked as retained")
	}
}

func TestRetainOfWhatWasNeverFinishedLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.provider.change(func() { w.provider.full = map[string]bool{"h1": true} })
	p := w.proxy("p", func(s *v1alpha1.ProxySpec) {
		s.DeletionPolicy, s.Placement = v1alpha1.DeletionRetain, &v1alpha1.Placement{Host: "h1"}
	})
	w.create(p)
	p = w.wait(p, "half made", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonCapacity))
	w.delete(p)
	w.waitGone(p)
	w.provider.change(func() {
		if len(w.provider.leftovers) != 0 {
			t.Errorf("left on the host: %v", w.provider.leftovers)
		}
	})
}

func TestDeleteBeforeAnythingWasMade(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("p", func(s *v1alpha1.ProxySpec) { s.Provider = "nonesuch" })
	w.create(p)
	w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonUnknownEntry))
	w.delete(p)
	w.waitGone(p)
}
