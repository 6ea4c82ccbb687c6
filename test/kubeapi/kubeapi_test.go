// SPDX-License-Identifier: Apache-2.0

//go:build kubeapi

package kubeapi

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestStartServesTheProjectsResources(t *testing.T) {
	api := Shared(t)
	client := newClient(t, api.Config)
	resources, err := client.Discovery().ServerResourcesForGroupVersion("egressproxies.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, resource := range resources.APIResources {
		served[resource.Name] = true
	}
	for _, want := range []string{"proxies", "proxies/status"} {
		if !served[want] {
			t.Errorf("%s is not served; served are %v", want, served)
		}
	}
	system, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if system.UID == "" {
		t.Error("kube-system has no UID")
	}
}

func TestSharedIsOneServer(t *testing.T) {
	if first, second := Shared(t), Shared(t); first != second {
		t.Errorf("two servers: %s and %s", first.Config.Host, second.Config.Host)
	}
}

func TestNamespaceIsDeletedWithTheTest(t *testing.T) {
	client := newClient(t, Shared(t).Config)
	var name string
	t.Run("a test with a namespace", func(t *testing.T) {
		name = Shared(t).Namespace(t)
		if _, err := client.CoreV1().ConfigMaps(name).Create(t.Context(), configMap("kept"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Errorf("namespace %s is still there: %v", name, err)
	}
}

func TestKill9AndRestart(t *testing.T) {
	api := Start(t)
	client := newClient(t, api.Config)
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	made, err := configMaps.Create(t.Context(), configMap("before"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	api.Kill9()
	if conn, err := net.Dial("tcp", api.Config.Host[len("https://"):]); err == nil {
		t.Errorf("something still listens on %s", api.Config.Host)
		_ = conn.Close()
	}
	api.Restart()

	found, err := configMaps.Get(t.Context(), "before", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the client of before the crash: %v", err)
	}
	if found.UID != made.UID {
		t.Errorf("UID %s, before the crash %s", found.UID, made.UID)
	}
}

func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
