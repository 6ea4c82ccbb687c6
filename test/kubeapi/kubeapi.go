// SPDX-License-Identifier: Apache-2.0

// Package kubeapi gives tests a real Kubernetes API: the standalone server, as a process of
// its own with a data directory of its own, and with the project's custom resources in it.
//
// The binary comes from hack/build-standalone.sh, whose first run on a machine compiles for
// about 7 minutes: longer than many a test timeout, so run it before the tests.
package kubeapi

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// API is one running server.
type API struct {
	// Config has all rights and no rate limit. It stays valid across Kill9 and Restart.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same rights.
	Kubeconfig string
	// Binary is the egress-standalone program, which is also kubectl.
	Binary string

	t      testing.TB
	server *server
}

// Start starts a server for this test alone, which takes about 3 seconds, and stops it when the test ends.
func Start(t testing.TB) *API {
	t.Helper()
	binary, err := findBinary()
	if err != nil {
		t.Fatal(err)
	}
	api, err := start(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	api.t = t
	t.Cleanup(func() {
		if err := api.server.stop(); err != nil {
			t.Error(err)
		}
	})
	return api
}

// Kill9 ends the server the hard way, as a power cut would, and returns when it is gone.
func (a *API) Kill9() {
	a.mustOwn()
	if err := a.server.kill(); err != nil {
		a.t.Fatal(err)
	}
}

// Restart starts the server again after Kill9, with the same data at the same address, and returns when it answers.
func (a *API) Restart() {
	a.mustOwn()
	if err := a.server.start(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *API) mustOwn() {
	if a.t == nil {
		panic("kubeapi: other tests use the shared server; take one of your own with Start")
	}
}

// Namespace makes a namespace for this test alone and deletes it, without waiting, when the test ends.
func (a *API) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(a.Config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.CoreV1().Namespaces()
	made, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := namespaces.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", made.Name, err)
		}
	})
	return made.Name
}

var shared struct {
	mutex   sync.Mutex
	allowed bool
	dir     string
	api     *API
	err     error
}

// Main runs a package's tests and then stops the server that they shared. Call it from
// TestMain: os.Exit(kubeapi.Main(m)).
func Main(m *testing.M) int {
	shared.mutex.Lock()
	shared.allowed = true
	shared.mutex.Unlock()
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Shared gives the one server of this package's tests, which the first caller starts. It needs Main.
func Shared(t testing.TB) *API {
	t.Helper()
	shared.mutex.Lock()
	defer shared.mutex.Unlock()
	if !shared.allowed {
		t.Fatal("kubeapi.Shared needs func TestMain(m *testing.M) { os.Exit(kubeapi.Main(m)) }")
	}
	if shared.api == nil && shared.err == nil {
		shared.api, shared.err = startShared()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.api
}

func startShared() (*API, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	if shared.dir, err = os.MkdirTemp("", "egress-kubeapi-"); err != nil {
		return nil, err
	}
	return start(binary, shared.dir)
}

func stopShared() error {
	shared.mutex.Lock()
	defer shared.mutex.Unlock()
	shared.allowed = false
	if shared.api != nil {
		if err := shared.api.server.stop(); err != nil {
			return err
		}
		shared.api = nil
	}
	if shared.dir == "" {
		return nil
	}
	return os.RemoveAll(shared.dir)
}
