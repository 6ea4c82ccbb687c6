// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.smoke.egressproxies.dev}
spec:
  group: smoke.egressproxies.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 3}
              colour: {type: string}
            x-kubernetes-validations:
            - rule: "!has(self.colour) || self.size < 10"
              message: a large widget has no colour
          status:
            type: object
            properties:
              conditions:
                type: array
                items: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const widget = `
apiVersion: smoke.egressproxies.dev/v1
kind: Widget
metadata: {name: small}
spec: {colour: blue}
`

// TestAPI runs on one server; each part has objects of its own.
func TestAPI(t *testing.T) {
	s := serve(t, t.TempDir())
	s.mustKubectl(widgetCRD, "apply", "-f", "-")
	s.mustKubectl("", "wait", "--for=condition=Established", "crd/widgets.smoke.egressproxies.dev", "--timeout=20s")

	t.Run("a custom resource gets defaults, CEL sentences and a status of its own", func(t *testing.T) { checkWidget(t, s) })
	t.Run("server-side apply and explain know the schema", func(t *testing.T) {
		s.mustKubectl(strings.Replace(widget, "small", "applied", 1), "apply", "--server-side", "-f", "-")
		if out := s.mustKubectl("", "explain", "widget.spec"); !strings.Contains(out, "colour") {
			t.Errorf("explain: %s", out)
		}
	})
	t.Run("dependents go with their owner, custom resources too", func(t *testing.T) { checkGarbageCollection(t, s) })
	t.Run("a namespace is deleted with what is in it", func(t *testing.T) { checkNamespaceDeletion(t, s) })
	t.Run("RBAC decides what a service account token may do", func(t *testing.T) { checkRBAC(t, s) })
	t.Run("a request without credentials is refused", func(t *testing.T) {
		config := rest.AnonymousClientConfig(s.config())
		_, err := newClient(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("error %v, want Unauthorized", err)
		}
	})
	t.Run("events and leases are served", func(t *testing.T) {
		s.mustKubectl(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease"}}`, "apply", "-f", "-")
		s.mustKubectl(`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"event"},"eventTime":"2026-01-01T00:00:00.000000Z",
			"reason":"Tried","action":"Try","type":"Normal","note":"n","reportingController":"smoke.egressproxies.dev/test","reportingInstance":"one",
			"regarding":{"kind":"Lease","name":"lease","namespace":"default"}}`, "apply", "-f", "-")
		if out := s.mustKubectl("", "get", "events"); !strings.Contains(out, "Tried") {
			t.Errorf("events: %s", out)
		}
	})
	t.Run("system namespaces have UIDs", func(t *testing.T) {
		for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			if uid := s.mustKubectl("", "get", "namespace", name, "-o", "jsonpath={.metadata.uid}"); len(uid) != 36 {
				t.Errorf("namespace %s has UID %q", name, uid)
			}
		}
	})
}

func checkWidget(t *testing.T, s *server) {
	s.mustKubectl(widget, "apply", "-f", "-")
	if size := s.mustKubectl("", "get", "widget", "small", "-o", "jsonpath={.spec.size}"); size != "3" {
		t.Errorf("size %q, want the default", size)
	}
	out, err := s.kubectl(strings.Replace(widget, "colour: blue", "colour: blue, size: 12", 1), "apply", "-f", "-")
	if err == nil || !strings.Contains(out, "a large widget has no colour") {
		t.Errorf("error %v, printed %q, want the rule's sentence", err, out)
	}
	patch := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	s.mustKubectl("", "patch", "widget", "small", "--type=merge", "-p", patch)
	if status := s.mustKubectl("", "get", "widget", "small", "-o", "jsonpath={.status}"); status != "" {
		t.Errorf("the main resource took a status: %s", status)
	}
	s.mustKubectl("", "patch", "widget", "small", "--subresource=status", "--type=merge", "-p", patch)
	s.mustKubectl("", "wait", "--for=condition=Ready", "widget/small", "--timeout=20s")
}

func checkGarbageCollection(t *testing.T, s *server) {
	s.mustKubectl(strings.Replace(widget, "small", "owner", 1), "apply", "-f", "-")
	uid := s.mustKubectl("", "get", "widget", "owner", "-o", "jsonpath={.metadata.uid}")
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "smoke.egressproxies.dev/v1", Kind: "Widget", Name: "owner", UID: types.UID(uid),
	}}}}
	secrets := s.client().CoreV1().Secrets(metav1.NamespaceDefault)
	if _, err := secrets.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.mustKubectl("", "delete", "widget", "owner")
	eventuallyGone(t, func(ctx context.Context) error {
		_, err := secrets.Get(ctx, "owned", metav1.GetOptions{})
		return err
	})
}

func checkNamespaceDeletion(t *testing.T, s *server) {
	s.mustKubectl("", "create", "namespace", "doomed")
	s.mustKubectl(widget, "apply", "-n", "doomed", "-f", "-")
	s.mustKubectl("", "delete", "namespace", "doomed", "--wait=false")
	eventuallyGone(t, func(ctx context.Context) error {
		_, err := s.client().CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{})
		return err
	})
}

func checkRBAC(t *testing.T, s *server) {
	s.mustKubectl("", "create", "serviceaccount", "reader")
	s.mustKubectl("", "create", "clusterrolebinding", "reader", "--clusterrole=view", "--serviceaccount=default:reader")
	token, err := s.client().CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config())
	config.BearerToken = token.Status.Token
	reader := newClient(t, config).CoreV1()
	// The rules of the role view are aggregated from other roles shortly after the first start.
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := reader.ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Errorf("configmaps: %v", err)
	}
	if _, err := reader.Secrets(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: error %v, want Forbidden", err)
	}
}

func eventuallyGone(t *testing.T, get func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		last = get(ctx)
		return apierrors.IsNotFound(last), nil
	})
	if err != nil {
		t.Errorf("it is still there: last answer %v", last)
	}
}
