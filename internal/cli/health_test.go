// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestCollectorFlags(t *testing.T) {
	good := write(t, "good.yaml", goodFile)
	for says, flag := range map[string]string{"on, dry-run or off": "--collector=maybe", "at least 1m": "--collector-grace=59s"} {
		var out safeBuffer
		if code := Run(t.Context(), []string{"operator", "--providers", good, flag}, &out, &out); code != ExitUsage || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit code %d: %s", flag, code, &out)
		}
	}
}

const revokedFile = `version: 1
reflectors:
  - url: http://127.0.0.1:1/
entries:
  - name: health-test
    type: kvm2
    hosts:
      - {name: kvm1, address: "%s", network: default}
    images:
      debian: {url: "https://127.0.0.1:1/image"}
    defaultImage: debian
    credentials:
      privateKeyFile: %s
      knownHostsFile: %s
`

// The whole operator, with one host that answers with a revoked key.
func TestARevokedKeyIsShown(t *testing.T) {
	api := kubeapi.Shared(t)
	namespace := api.Namespace(t)
	hostKey, _ := linktest.Ed25519Key(t)
	login, private := linktest.Ed25519Key(t)
	sshd := &linktest.Server{HostKeys: []ssh.Signer{hostKey}, Client: login.PublicKey()}
	sshd.Start(t)
	pin := knownhosts.Line([]string{sshd.Addr}, hostKey.PublicKey())
	providers := fmt.Sprintf(revokedFile, sshd.Addr, write(t, "id", string(private)), linktest.KnownHosts(t, pin, "@revoked "+pin))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log safeBuffer
	ended := make(chan int, 1)
	args := []string{
		"operator", "--providers", write(t, "providers.yaml", providers), "--kubeconfig", api.Kubeconfig, "--namespace", namespace,
		"--leader-elect", "--collector=dry-run",
	}
	go func() { ended <- Run(ctx, args, &log, &log) }()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.Now().Add(time.Minute)
	until := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %s", what, &log)
			}
			select {
			case code := <-ended:
				t.Fatalf("the operator ended with %d: %s", code, &log)
			case <-poll.C:
			}
		}
	}
	until("started", func() bool { return strings.Contains(log.String(), "operator starts") })
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(api.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: v1alpha1.ProxySpec{Provider: "health-test"}}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Run("L2: a revoked host key is shown in the condition and in the ProviderHealth", func(t *testing.T) {
		var h v1alpha1.ProviderHealth
		until("Unauthorized", func() bool {
			err := c.Get(t.Context(), client.ObjectKey{Name: "health-test"}, &h)
			return err == nil && len(h.Status.Hosts) == 1 && h.Status.Hosts[0].Reason == provider.HostUnauthorized
		})
		if message := h.Status.Hosts[0].Message; !strings.Contains(message, "is revoked by") {
			t.Errorf("the message is %q", message)
		}
		if ready := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonNoHostReady || !strings.Contains(ready.Message, "kvm1: Unauthorized") {
			t.Errorf("%+v", ready)
		}
		until("said of the Proxy", func() bool {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			provisioned := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
			return provisioned != nil && strings.Contains(provisioned.Message, "Unauthorized") && strings.Contains(provisioned.Message, "is revoked by")
		})
	})
	until("an event", func() bool {
		var events corev1.EventList
		if err := c.List(t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "ProviderHealth" && e.InvolvedObject.Name == "health-test" && e.Reason == provider.HostUnauthorized
		})
	})
	cancel()
	if code := <-ended; code != ExitOK {
		t.Errorf("exit code %d: %s", code, &log)
	}
}
