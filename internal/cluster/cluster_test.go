// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestMain(m *testing.M) { os.Exit(kubeapi.Main(m)) }

func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubeapi.Shared(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoadMakesTheIdentityOnce(t *testing.T) {
	c := newClient(t)
	const namespace = "made-by-load"
	identities := make([]Identity, 8)
	var loading sync.WaitGroup
	for i := range identities {
		loading.Go(func() {
			var err error
			if identities[i], err = Load(t.Context(), c, namespace); err != nil {
				t.Error(err)
			}
		})
	}
	loading.Wait()
	var system corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(string(system.UID), "-", "")[:12]; identities[0].ID != want {
		t.Errorf("cluster ID %q, want %q, from the UID of kube-system", identities[0].ID, want)
	}
	first, _ := identities[0].ControlKey("a")
	for _, other := range identities[1:] {
		if key, _ := other.ControlKey("a"); other.ID != identities[0].ID || key != first {
			t.Error("operators that start at once have different identities")
		}
	}
}

func TestLoadTakesWhatIsThere(t *testing.T) {
	c := newClient(t)
	namespace := kubeapi.Shared(t).Namespace(t)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}, Data: map[string]string{ConfigMapKey: "handedover1"}}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	identity, err := Load(t.Context(), c, namespace)
	if err != nil || identity.ID != "handedover1" {
		t.Errorf("%q, %v", identity.ID, err)
	}
}

func TestLoadMakesNothingAnewThatInstancesDependOn(t *testing.T) {
	c := newClient(t)
	namespace := kubeapi.Shared(t).Namespace(t)
	proxy := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made"}, Spec: v1alpha1.ProxySpec{Provider: "home"}}
	if err := c.Create(t.Context(), proxy); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), c, namespace); err != nil {
		t.Fatalf("a Proxy without a host is in the way: %v", err)
	}
	stored := proxy.DeepCopy()
	proxy.Status.Host = "h1"
	if err := c.Status().Patch(t.Context(), proxy, client.MergeFrom(stored)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), proxy)); err != nil {
			t.Error(err)
		}
	})
	before, err := Load(t.Context(), c, namespace)
	if err != nil {
		t.Fatalf("an identity that is whole: %v", err)
	}
	for name, object := range map[string]client.Object{
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}},
		"Secret":    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ControlKeyName}},
	} {
		t.Run(name, func(t *testing.T) {
			key := client.ObjectKeyFromObject(object)
			if err := c.Get(t.Context(), key, object); err != nil {
				t.Fatal(err)
			}
			if err := c.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			_, err := Load(t.Context(), c, namespace)
			for _, part := range []string{name + " " + key.String(), namespace + "/made", "h1", "backup"} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			object.SetResourceVersion("")
			object.SetUID("")
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatalf("restore it: %v", err)
			}
			after, err := Load(t.Context(), c, namespace)
			if err != nil || after.ID != before.ID || !bytes.Equal(after.master, before.master) {
				t.Errorf("the restored identity is another: %v", err)
			}
		})
	}
}

// unlisted answers every list with an error.
type unlisted struct {
	client.Reader
	err error
}

func (u unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error { return u.err }

func TestNeverUsed(t *testing.T) {
	if err := neverUsed(t.Context(), unlisted{err: &meta.NoKindMatchError{}}, ""); err != nil {
		t.Errorf("a cluster without the kind Proxy: %v", err)
	}
	if err := neverUsed(t.Context(), unlisted{err: errors.New("forbidden")}, ""); err == nil {
		t.Error("Proxies that cannot be listed count as none")
	}
}

func TestLoadRefusesWhatIsWrong(t *testing.T) {
	c := newClient(t)
	for name, data := range map[string]map[string]string{
		"missing": {}, "short": {ConfigMapKey: "abc"}, "upper case": {ConfigMapKey: "ABCDEFGH"}, "dash": {ConfigMapKey: "abc-def"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := kubeapi.Shared(t).Namespace(t)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}, Data: data}
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			_, err := Load(t.Context(), c, namespace)
			if err == nil || !strings.Contains(err.Error(), ConfigMapName) || !strings.Contains(err.Error(), namespace) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestControlKeys(t *testing.T) {
	identity, err := New("abcdef", make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := identity.ControlKey("0000-A")
	again, _ := identity.ControlKey(" 0000-a ")
	b, _ := identity.ControlKey("0000-b")
	if a != again || a == b || len(a.Reveal()) != 32 {
		t.Error("a control key is not a function of the UID, or the same for two")
	}
	if _, err := New("abcdef", make([]byte, 31)); err == nil {
		t.Error("a short master key is accepted")
	}
}
