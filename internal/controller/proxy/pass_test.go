// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// told is a prober that knows what the test says.
type told struct{ health probe.Health }

func (told) Watch(string, probe.Target, probe.Policy, probe.Health) {}
func (told) Forget(string)                                          {}
func (t *told) Health(string) (probe.Health, bool)                  { return t.health, true }

// After a restart the first pass of a Proxy whose instance is gone writes that it is not probed yet, and the second, milliseconds later, that it
// is as healthy as before the restart: which is what an outdated cache has anyway.
func TestAStatusIsWrittenThatTheCacheStillHas(t *testing.T) {
	w := newWorld(t)
	w.stop()
	p := w.proxy("p", func(s *v1alpha1.ProxySpec) {
		s.Provider, s.External = "", &v1alpha1.ExternalProxy{Address: "127.0.0.1:9", Protocol: v1alpha1.ProtocolHTTP}
		s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "theirs"}}
	})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "theirs"}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{v1alpha1.SecretKeyUsername: "bob", v1alpha1.SecretKeyPassword: "a-long-password"},
	}
	if err := w.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.create(p)
	good := probe.Health{Proven: true, Healthy: true, Reason: probe.Succeeded, Last: probe.Succeeded, Message: "good", Exit: netip.MustParseAddr("192.0.2.1")}
	prober := &told{health: good}
	reconciler := func(c client.Client) *Reconciler {
		return &Reconciler{
			Client: c, Live: w.client, Now: time.Now, Guest: w.guest, Pace: DefaultPace, Events: events.NewFakeRecorder(100), Probes: prober,
			Current: func() Set { return Set{File: w.file, Providers: map[string]provider.Provider{}} },
		}
	}
	pass := func(r *Reconciler) *v1alpha1.Proxy {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
		var now v1alpha1.Proxy
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
			t.Fatal(err)
		}
		return &now
	}
	old := pass(reconciler(w.client))
	if !ready(old) {
		t.Fatal(describe(old))
	}

	restarted := reconciler(outdated{w.client, old})
	prober.health = probe.Health{}
	if now := pass(restarted); ready(now) {
		t.Fatal(describe(now))
	}
	prober.health = good
	if now := pass(restarted); !ready(now) {
		t.Error(describe(now))
	}
}
