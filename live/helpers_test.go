// SPDX-License-Identifier: Apache-2.0

//go:build live

package live

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

const namespace = "default"

// Deadlines, from the steps that they bound: a fetch of a small image and the agent, and a boot without KVM on a busy machine.
const (
	madeWithin    = 2 * time.Minute
	tinyBoots     = 4 * time.Minute
	cloudBoots    = 8 * time.Minute
	deletedWithin = 2 * time.Minute
	cleanupTime   = 30 * time.Second
)

func proxy(name string, change ...func(*v1alpha1.ProxySpec)) *v1alpha1.Proxy {
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.ProxySpec{Provider: lab.Entry}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

// onImage boots one image of the catalogue on one host, or on any where host is empty.
func onImage(image, host string) func(*v1alpha1.ProxySpec) {
	return func(s *v1alpha1.ProxySpec) {
		s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{Name: image}, Host: host}
	}
}

func create(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy) {
	t.Helper()
	if err := l.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// await waits until a Proxy is as wanted, and returns it.
func await(t *testing.T, l *lab.Lab, name string, within time.Duration, what string, wanted func(*v1alpha1.Proxy) bool) *v1alpha1.Proxy {
	t.Helper()
	p := &v1alpha1.Proxy{}
	err := lab.Until(t.Context(), within, fmt.Sprintf("Proxy %s %s", name, what), func(ctx context.Context) (bool, error) {
		if err := l.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
			return false, err
		}
		return wanted(p), nil
	})
	if err != nil {
		t.Fatalf("%v; its conditions:\n%s", err, conditions(p))
	}
	return p
}

func awaitReady(t *testing.T, l *lab.Lab, name string, within time.Duration) *v1alpha1.Proxy {
	t.Helper()
	return await(t, l, name, within, "to be Ready", func(p *v1alpha1.Proxy) bool {
		return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
	})
}

func awaitReason(t *testing.T, l *lab.Lab, name string, within time.Duration, kind, reason string) *v1alpha1.Proxy {
	t.Helper()
	return await(t, l, name, within, fmt.Sprintf("to have %s with reason %s", kind, reason), func(p *v1alpha1.Proxy) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		return c != nil && c.Reason == reason
	})
}

func conditions(p *v1alpha1.Proxy) string {
	var b strings.Builder
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// remove deletes Proxies and waits until they are gone.
func remove(t *testing.T, l *lab.Lab, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := l.Client.Delete(t.Context(), &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		p := &v1alpha1.Proxy{}
		err := lab.Until(t.Context(), deletedWithin, "Proxy "+name+" to be gone", func(ctx context.Context) (bool, error) {
			err := l.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Fatalf("%v; its conditions:\n%s", err, conditions(p))
		}
	}
}

// holdings of all hosts.
func holdings(t *testing.T, l *lab.Lab) (all lab.Holdings) {
	t.Helper()
	for _, h := range l.Hosts {
		held, err := lab.Hold(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		all.Domains = append(all.Domains, held.Domains...)
		all.Volumes = append(all.Volumes, held.Volumes...)
	}
	return all
}

func nothingLeft(t *testing.T, l *lab.Lab) {
	t.Helper()
	held := holdings(t, l)
	if left := append(held.Instances(), held.Loose()...); len(left) > 0 {
		t.Errorf("left on the hosts: %v", left)
	}
}

// userOf reads the credentials of a Proxy.
func userOf(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy) *url.Userinfo {
	t.Helper()
	var secret corev1.Secret
	if err := l.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Status.CredentialsSecret}, &secret); err != nil {
		t.Fatal(err)
	}
	return url.UserPassword(string(secret.Data[v1alpha1.SecretKeyUsername]), string(secret.Data[v1alpha1.SecretKeyPassword]))
}

func splitLines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// cleanupContext outlives the test, for what has to be tidied up after it.
func cleanupContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
	t.Cleanup(cancel)
	return ctx
}
