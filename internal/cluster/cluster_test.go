// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestMain(m *testing.M) { os.Exit(kubeapi.Main(m)) }

func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(kubeapi.Shared(t).Config, client.Options{})
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
