// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

// running is an operator over a real API server, which a test waits for.
type running struct {
	client.Client
	t          *testing.T
	namespace  string
	kubeconfig string
	log        safeBuffer
	cancel     context.CancelFunc
	ended      chan int
	deadline   time.Time
}

// runOperator runs the command with a providers file, in a namespace of the test's own, until the test ends it.
func runOperator(t *testing.T, providers string, flags ...string) *running {
	t.Helper()
	api := kubeapi.Shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{
		t: t, namespace: api.Namespace(t), kubeconfig: api.Kubeconfig, cancel: cancel, ended: make(chan int, 1), deadline: time.Now().Add(2 * time.Minute),
	}
	t.Cleanup(cancel)
	args := append([]string{"operator", "--providers", providers, "--kubeconfig", api.Kubeconfig, "--namespace", r.namespace, "--leader-elect", "--console-socket="}, flags...)
	go func() { r.ended <- Run(ctx, args, &r.log, &r.log) }()
	// Until then it sets up logging, which the test's own client reads.
	r.until("started", func() bool { return strings.Contains(r.log.String(), "operator starts") })
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if r.Client, err = client.New(api.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) until(what string, is func() bool) {
	r.t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !is() {
		if time.Now().After(r.deadline) {
			r.t.Fatalf("not %s: %s", what, &r.log)
		}
		select {
		case code := <-r.ended:
			r.t.Fatalf("the operator ended with %d: %s", code, &r.log)
		case <-poll.C:
		}
	}
}

// end has the operator end, as it should.
func (r *running) end() {
	r.t.Helper()
	r.cancel()
	if code := <-r.ended; code != ExitOK {
		r.t.Errorf("exit code %d: %s", code, &r.log)
	}
}

func (r *running) create(name, entry string) *v1alpha1.Proxy {
	r.t.Helper()
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Spec: v1alpha1.ProxySpec{Provider: entry}}
	if err := r.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *running) read(p *v1alpha1.Proxy) *v1alpha1.Proxy {
	r.t.Helper()
	if err := r.Get(r.t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// told says whether there is an event at a ProviderHealth.
func (r *running) told(entry, reason string) bool {
	r.t.Helper()
	var events corev1.EventList
	if err := r.List(r.t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		r.t.Fatal(err)
	}
	return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "ProviderHealth" && e.InvolvedObject.Name == entry && e.Reason == reason
	})
}
