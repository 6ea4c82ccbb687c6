// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

func TestLifecycle(t *testing.T) {
	w := newWorld(t)
	p := w.made("one", nil)

	instance := w.provider.one()
	if ip := instance.Addresses[0].String(); p.Status.IP != ip || len(p.Status.ExitIPs) != 1 || p.Status.ExitIPs[0] != ip || p.Status.Endpoint != instance.proxy.Address {
		t.Errorf("address and exit are not those of the instance at %s: %s", instance.proxy.Address, describe(p))
	}
	if p.Status.Host != instance.Host || p.Status.ProviderID != instance.ProviderID || p.Status.Image != "tiny" || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("the status is not that of the instance: %+v", p.Status)
	}
	for _, kind := range []string{v1alpha1.ConditionProvisioned, v1alpha1.ConditionHealthy, v1alpha1.ConditionExitVerified, v1alpha1.ConditionReady} {
		if !meta.IsStatusConditionTrue(p.Status.Conditions, kind) {
			t.Errorf("%s is not True", kind)
		}
	}
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if meta.FindStatusCondition(p.Status.Conditions, kind) != nil {
			t.Errorf("%s is present on a Proxy that is Ready", kind)
		}
	}
	var secret corev1.Secret
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: p.Status.CredentialsSecret}, &secret); err != nil {
		t.Fatal(err)
	}
	if secret.Type != corev1.SecretTypeBasicAuth || !metav1.IsControlledBy(&secret, p) || secret.Labels[v1alpha1.LabelProxy] != "one" {
		t.Errorf("the generated Secret: type %s, owners %v, labels %v", secret.Type, secret.OwnerReferences, secret.Labels)
	}
	if instance.spec.Credentials.Password.Reveal() != string(secret.Data[v1alpha1.SecretKeyPassword]) || len(secret.Data[v1alpha1.SecretKeyPassword]) < 32 {
		t.Error("the instance has other credentials than the Secret, or short ones")
	}
	if len(instance.spec.ControlKey.Reveal()) != 32 {
		t.Error("the instance has no control key")
	}

	before := p.ResourceVersion
	w.holds(p, "nothing is written while nothing changes", func(p *v1alpha1.Proxy) bool { return p.ResourceVersion == before })

	if err := w.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.waitGone(p)
	if list, _ := w.provider.List(t.Context()); len(list) != 0 {
		t.Errorf("left on the hosts: %v", list)
	}
}

func TestReadyOnlyAfterTheProbes(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("p", nil)
	w.provider.change(func() { w.provider.broken = true })
	w.create(p)
	w.wait(p, "running but not through", func(p *v1alpha1.Proxy) bool {
		return has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning)(p) &&
			has(v1alpha1.ConditionHealthy, metav1.ConditionFalse, v1alpha1.ReasonEgressFailed)(p)
	})
	w.holds(p, "not Ready while nothing goes through", func(p *v1alpha1.Proxy) bool { return !ready(p) })
	w.provider.one().proxy.Break(false)
	w.wait(p, "Ready", ready)
}

func TestProbesDemoteAndPromote(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	w.provider.one().proxy.Break(true)
	p = w.wait(p, "unhealthy", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonEgressFailed))
	if p.Status.Endpoint == "" || len(p.Status.ExitIPs) != 1 {
		t.Errorf("an unhealthy Proxy lost its addresses: %s", describe(p))
	}
	w.provider.one().proxy.Break(false)
	w.wait(p, "Ready again", ready)
}

func TestExpectedExitAndCordon(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	w.update(p, func(p *v1alpha1.Proxy) {
		p.Spec.ExpectedExit = &v1alpha1.ExpectedExit{IPv4: []string{"198.51.100.0/24"}}
	})
	p = w.wait(p, "mismatch", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExitMismatch))
	if !strings.Contains(message(p, v1alpha1.ConditionReady), "198.51.100.0/24") {
		t.Error(describe(p))
	}
	w.update(p, func(p *v1alpha1.Proxy) { p.Spec.ExpectedExit.IPv4 = []string{"127.0.0.0/8"} })
	p = w.wait(p, "expected", has(v1alpha1.ConditionExitVerified, metav1.ConditionTrue, v1alpha1.ReasonExitExpected))
	w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Cordoned = true })
	p = w.wait(p, "cordoned", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCordoned))
	if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionHealthy) || meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling) != nil {
		t.Errorf("a cordoned Proxy is healthy, and at rest: %s", describe(p))
	}
	w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Cordoned = false })
	w.wait(p, "Ready", ready)
}

func TestDrift(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	w.update(p, func(p *v1alpha1.Proxy) {
		p.Spec.Placement = &v1alpha1.Placement{MemoryMiB: 1024, Image: &v1alpha1.Image{Name: "large"}}
		p.Spec.Port = 3200
	})
	p = w.wait(p, "drifted", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonDrifted))
	for _, part := range []string{"placement.memoryMiB: have 512, want 1024", "placement.image: have tiny, want large", "port: have 3128, want 3200"} {
		if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), part) {
			t.Errorf("the condition does not say %q: %s", part, describe(p))
		}
	}
	if !ready(p) || !strings.HasSuffix(p.Status.Endpoint, ":3128") {
		t.Errorf("a drifted Proxy goes on as it is: %s", describe(p))
	}
	w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Placement, p.Spec.Port = nil, 3128 })
	w.wait(p, "as it was", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning))
}

func TestExternalProxy(t *testing.T) {
	w := newWorld(t)
	// An instance of another Proxy serves as somebody else's proxy.
	theirs := w.made("theirs", nil)
	for _, protocol := range []v1alpha1.Protocol{v1alpha1.ProtocolHTTP, v1alpha1.ProtocolSOCKS5} {
		p := w.proxy("external-"+strings.ToLower(string(protocol)), func(s *v1alpha1.ProxySpec) {
			s.Provider = ""
			s.External = &v1alpha1.ExternalProxy{Address: theirs.Status.Endpoint, Protocol: protocol}
			s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: theirs.Status.CredentialsSecret}}
		})
		w.create(p)
		p = w.wait(p, "Ready", ready)
		if p.Status.ExitIPs[0] != theirs.Status.ExitIPs[0] || len(p.Finalizers) != 0 {
			t.Errorf("exits %v, finalizers %v", p.Status.ExitIPs, p.Finalizers)
		}
	}
	if list, _ := w.provider.List(t.Context()); len(list) != 1 {
		t.Errorf("an external Proxy was provisioned: %v", list)
	}
}
