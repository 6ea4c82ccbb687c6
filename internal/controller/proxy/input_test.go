// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestBadReferencesAreConditions(t *testing.T) {
	w := newWorld(t)
	for name, data := range map[string]string{"headless": "runcmd: [hunter2]\n", "good": "#cloud-config\nruncmd: [ls]\n"} {
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, StringData: map[string]string{"userData": data}})
	}
	for name, c := range map[string]struct {
		spec   func(*v1alpha1.ProxySpec)
		reason string
		says   []string
	}{
		"unknown-entry": {func(s *v1alpha1.ProxySpec) { s.Provider = "hom" }, v1alpha1.ReasonUnknownEntry, []string{`"hom"`, "home, private, undefaulted"}},
		"unknown-host": {
			func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: "h3"} }, v1alpha1.ReasonUnknownHost, []string{`"h3"`, "h1, h2"},
		},
		"unknown-image": {
			func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "debian"}} },
			v1alpha1.ReasonUnknownImage, []string{`"debian"`, "large, tiny"},
		},
		"no-default-image": {func(s *v1alpha1.ProxySpec) { s.Provider = "undefaulted" }, v1alpha1.ReasonUnknownImage, []string{"defaultImage", "x"}},
		"namespace":        {func(s *v1alpha1.ProxySpec) { s.Provider = "private" }, v1alpha1.ReasonNamespaceNotAllowed, []string{"team-a"}},
		"url-not-allowed": {
			func(s *v1alpha1.ProxySpec) {
				s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{URL: "https://evil.example/i", SHA256: strings.Repeat("0", 64)}}
			}, v1alpha1.ReasonInvalidSpec, []string{"evil.example", "images.example"},
		},
		"no-secret": {
			func(s *v1alpha1.ProxySpec) {
				s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "nonesuch"}}
			},
			v1alpha1.ReasonInvalidSecret, []string{"nonesuch", w.namespace, "username and password"},
		},
		"no-user-data": {
			func(s *v1alpha1.ProxySpec) {
				s.Software = &v1alpha1.Software{Type: v1alpha1.SoftwareCloudInit, UserDataSecretRef: &v1alpha1.SecretReference{Name: "nonesuch"}}
			}, v1alpha1.ReasonInvalidSecret, []string{"nonesuch", "userData"},
		},
		"ignored-user-data": {
			func(s *v1alpha1.ProxySpec) {
				s.Software = &v1alpha1.Software{UserDataSecretRef: &v1alpha1.SecretReference{Name: "headless"}}
			}, v1alpha1.ReasonInvalidSecret, []string{"key userData of Secret headless", "its first line is none that cloud-init knows"},
		},
		"user-data-not-allowed": {
			func(s *v1alpha1.ProxySpec) {
				s.Provider = "undefaulted"
				s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "x"}}
				s.Software = &v1alpha1.Software{UserDataSecretRef: &v1alpha1.SecretReference{Name: "good"}}
			}, v1alpha1.ReasonNamespaceNotAllowed, []string{"software.userDataSecretRef", "allowUserData", "team-b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.proxy(name, c.spec)
			w.create(p)
			p = w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, c.reason))
			if !has(v1alpha1.ConditionReady, metav1.ConditionFalse, c.reason)(p) || !has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, c.reason)(p) {
				t.Error(describe(p))
			}
			for _, part := range c.says {
				if !strings.Contains(message(p, v1alpha1.ConditionStalled), part) {
					t.Errorf("the condition does not say %q: %s", part, describe(p))
				}
			}
		})
	}
	if list, _ := w.provider.List(t.Context()); len(list) != 0 {
		t.Errorf("instances were made: %v", list)
	}
}

func TestAMistakeInTheSpecOfARunningProxyDemotesNobody(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	w.update(p, func(p *v1alpha1.Proxy) { p.Spec.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "gone"}} })
	p = w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonUnknownImage))
	w.holds(p, "Ready", ready)
	w.provider.one().proxy.Break(true)
	w.wait(p, "probed all the same", has(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonEgressFailed))
}

func secretOf(w *world, name, username, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{v1alpha1.SecretKeyUsername: username, v1alpha1.SecretKeyPassword: password},
	}
}

func TestSecrets(t *testing.T) {
	w := newWorld(t)
	t.Run("named, missing at first, then wrong, then right", func(t *testing.T) {
		p := w.proxy("named", func(s *v1alpha1.ProxySpec) {
			s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "mine"}}
		})
		w.create(p)
		w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSecret))
		secret := secretOf(w, "mine", "a:b", "hunter2secret")
		w.create(secret)
		p = w.wait(p, "says what is wrong", func(p *v1alpha1.Proxy) bool { return strings.Contains(message(p, v1alpha1.ConditionStalled), "colon") })
		if strings.Contains(describe(p), "hunter2secret") {
			t.Error("the condition holds the password")
		}
		secret.Data = map[string][]byte{v1alpha1.SecretKeyUsername: []byte("ab"), v1alpha1.SecretKeyPassword: []byte("hunter2secret")}
		if err := w.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		p = w.wait(p, "Ready", ready)
		if p.Status.CredentialsSecret != "mine" {
			t.Error(describe(p))
		}
	})
	t.Run("a Secret of the generated name that is not ours is not used", func(t *testing.T) {
		w.create(secretOf(w, "squatted-credentials", "u", "p"))
		p := w.proxy("squatted", nil)
		w.create(p)
		p = w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSecret))
		if !strings.Contains(message(p, v1alpha1.ConditionStalled), "squatted-credentials") {
			t.Error(describe(p))
		}
	})
}

func TestNewCredentialsReachTheRunningGuest(t *testing.T) {
	w := newWorld(t)
	secret := secretOf(w, "mine", "u", "first")
	w.create(secret)
	p := w.made("p", func(s *v1alpha1.ProxySpec) {
		s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "mine"}}
	})
	if w.guest.calls != 0 {
		t.Errorf("a fresh guest was asked %d times, and it has its credentials from the seed", w.guest.calls)
	}
	set := func(password string) {
		t.Helper()
		stored := secret.DeepCopy()
		secret.Data[v1alpha1.SecretKeyPassword] = []byte(password)
		if err := w.client.Patch(t.Context(), secret, client.MergeFrom(stored)); err != nil {
			t.Fatal(err)
		}
	}
	inForce := func(p *v1alpha1.Proxy) bool {
		return p.Status.CredentialsSecret == "mine" && p.Status.Credentials != nil && p.Status.Credentials.SecretVersion == secret.ResourceVersion
	}
	p = w.wait(p, "shows which credentials are in force", inForce)
	if c := p.Status.Credentials; c.Since == nil || c.PreviousUntil != nil {
		t.Errorf("a fresh guest's credentials: %+v", c)
	}
	set("second")
	w.poll("the guest has the second password", func() bool { return w.provider.one().proxy.Accepts("u", "second") })
	p = w.wait(p, "shows the new ones in force, and how long the old ones are", func(p *v1alpha1.Proxy) bool {
		until := p.Status.Credentials.PreviousUntil
		return inForce(p) && until != nil && time.Until(until.Time) > 4*time.Minute && time.Until(until.Time) <= 5*time.Minute
	})
	w.holds(p, "Ready throughout", ready)

	w.guest.fail(errors.New("the agent does not answer"))
	set("third")
	p = w.wait(p, "drifted", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonDrifted))
	if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), "the agent does not answer") || strings.Contains(describe(p), "third") {
		t.Error(describe(p))
	}
	w.holds(p, "Ready with the credentials that it has", func(p *v1alpha1.Proxy) bool { return ready(p) && !inForce(p) })
	w.guest.fail(nil)
	p = w.wait(p, "shows the third ones in force", inForce)
	w.wait(p, "no drift", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning))
	w.holds(p, "Ready", ready)
}

func TestAGuestThatTakesNothingIsAskedEverMoreSeldom(t *testing.T) {
	now := time.Now()
	scripted := newScripted(t, "h1")
	guest := &testGuest{by: scripted}
	r := &Reconciler{Probes: probe.NewScheduler(nil, 1, func(string) {}), Guest: guest, Pace: Pace{Retry: time.Second, RetryMax: 8 * time.Second}}
	proxy := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p"}}
	proxy.Status.Endpoint, proxy.Status.Credentials = "192.0.2.1:3128", &v1alpha1.CredentialsStatus{}
	r.notes.of("u", func(n *note) { n.guestHas = provider.Credentials{Username: "old"} })
	var messages []string
	for attempt, least := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		guest.fail(fmt.Errorf("status: read tcp 192.0.2.9:%d->192.0.2.1:3128: i/o timeout", 40000+attempt))
		p := newPass(proxy, Set{}, now)
		p.provider, p.credentials = scripted, &provider.Credentials{Username: "new"}
		running := provider.Instance{State: provider.StateRunning, Shape: provider.Shape{Software: provider.SoftwareAgent}}
		scripted.instances[key(p.spec.InstanceRef)] = &made{Instance: running}
		for _, step := range []step{r.instance, r.guestCredentials} {
			if goOn, err := step(t.Context(), p); !goOn || err != nil {
				t.Fatal(goOn, err)
			}
		}
		if p.after < least*9/10 {
			t.Errorf("attempt %d is repeated after %v, want about %v", attempt+1, p.after, least)
		}
		messages = append(messages, message(p.proxy, v1alpha1.ConditionProvisioned))
	}
	if messages = slices.Compact(messages); len(messages) != 1 || !strings.Contains(messages[0], "read tcp 192.0.2.1:3128: i/o timeout") {
		t.Errorf("the same failure is told in several ways: %q", messages)
	}
}

func TestAProxyThatNobodyProbesIsNotReady(t *testing.T) {
	w := newWorld(t)
	secret := secretOf(w, "mine", "u", "p")
	w.create(secret)
	p := w.made("p", func(s *v1alpha1.ProxySpec) {
		s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "mine"}}
	})
	w.delete(secret)
	p = w.wait(p, "stalled", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSecret))
	w.holds(p, "Ready by the probes that go on", ready)
	w.stop()
	w.start()
	p = w.wait(p, "health unknown", has(v1alpha1.ConditionHealthy, metav1.ConditionUnknown, v1alpha1.ReasonInvalidSecret))
	if ready(p) || !strings.Contains(message(p, v1alpha1.ConditionHealthy), "mine") {
		t.Error(describe(p))
	}
	w.create(secretOf(w, "mine", "u", "p"))
	w.wait(p, "Ready again", ready)
}

func TestARestartOfTheOperatorDemotesNobody(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	w.stop()
	before := p.ResourceVersion
	w.start()
	w.holds(p, "untouched", func(p *v1alpha1.Proxy) bool { return ready(p) && p.ResourceVersion == before })
}
