// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

type object = map[string]any

func proxyOf(namespace, name string, spec object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Proxy"))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func TestTheAPIServerRefusesWithASentence(t *testing.T) {
	api := kubeapi.Shared(t)
	namespace := api.Namespace(t)
	c, err := client.New(api.Config, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	external := object{"address": "proxy.example:8080", "protocol": "HTTP"}
	auth := object{"secretRef": object{"name": "s"}}
	with := func(name string, value any) object { return object{"provider": "home", name: value} }
	placed := func(name string, value any) object { return with("placement", object{name: value}) }
	for name, test := range map[string]struct {
		spec object
		says string
	}{
		"both":                        {object{"provider": "home", "external": external, "auth": auth}, "exactly one of spec.provider"},
		"neither":                     {object{}, "exactly one of spec.provider"},
		"external without auth":       {object{"external": external}, "needs spec.auth.secretRef"},
		"external with placement":     {object{"external": external, "auth": auth, "placement": object{"vcpus": 1}}, "is not placed"},
		"external with software":      {object{"external": external, "auth": auth, "software": object{"type": "None"}}, "nothing is installed"},
		"external with credentials":   {object{"external": object{"address": "u:p@x:1", "protocol": "HTTP"}, "auth": auth}, "without user or password"},
		"external TLS without HTTPS":  {object{"external": object{"address": "x:1", "protocol": "HTTP", "tls": object{}}, "auth": auth}, "needs spec.external.protocol HTTPS"},
		"unknown protocol":            {object{"external": object{"address": "x:1", "protocol": "FTP"}, "auth": auth}, "Unsupported value"},
		"no CPU":                      {placed("vcpus", -1), "greater than or equal to 1"},
		"absurdly many CPUs":          {placed("vcpus", 1000), "less than or equal to 64"},
		"absurd memory":               {placed("memoryMiB", 99999999), "less than or equal to 262144"},
		"too little memory":           {placed("memoryMiB", 1), "greater than or equal to 64"},
		"absurd disk":                 {placed("diskSizeGb", 100000), "less than or equal to 4096"},
		"a disk beyond 32 bits":       {placed("diskSizeGb", int64(1)<<40), "less than or equal to 4096"},
		"no port":                     {with("port", 70000), "less than or equal to 65535"},
		"image without name and URL":  {placed("image", object{}), "exactly one of placement.image.name"},
		"image URL without digest":    {placed("image", object{"url": "https://x/i"}), "needs placement.image.sha256"},
		"image URL with credentials":  {placed("image", object{"url": "https://u:p@x/i", "sha256": strings.Repeat("0", 64)}), "without user or password"},
		"bad CIDR":                    {with("expectedExit", object{"ipv4": []any{"203.0.113.0"}}), "IPv4 networks such as"},
		"IPv6 among IPv4":             {with("expectedExit", object{"ipv4": []any{"2001:db8::/32"}}), "IPv4 networks such as"},
		"IPv4 among IPv6":             {with("expectedExit", object{"ipv6": []any{"203.0.113.0/24"}}), "IPv6 networks such as"},
		"nothing expected":            {with("expectedExit", object{}), "needs ipv4 or ipv6"},
		"timeout beyond the interval": {with("probe", object{"timeoutSeconds": 30, "intervalSeconds": 10}), "must not exceed"},
		"user data for None":          {with("software", object{"type": "None", "userDataSecretRef": object{"name": "s"}}), "leaves the guest alone"},
		"CloudInit without user data": {with("software", object{"type": "CloudInit"}), "needs software.userDataSecretRef"},
		"endless overlap":             {with("credentialsOverlapSeconds", 86401), "less than or equal to 86400"},
		"unknown mode":                {with("mode", "Sticky"), "Unsupported value"},
		"unknown field":               {with("placment", object{}), "unknown field"},
		"entry that cannot be":        {object{"provider": "Home!"}, "should match"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), proxyOf(namespace, "p", test.spec), client.FieldValidation(metav1.FieldValidationStrict))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("refused without saying %q: %v", test.says, err)
			}
		})
	}
	t.Run("a long name", func(t *testing.T) {
		err := c.Create(t.Context(), proxyOf(namespace, strings.Repeat("n", 64), object{"provider": "home"}))
		if err == nil || !strings.Contains(err.Error(), "at most 63 characters") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheAPIServerRefusesChanges(t *testing.T) {
	api := kubeapi.Shared(t)
	namespace := api.Namespace(t)
	c, err := client.New(api.Config, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	auth := object{"secretRef": object{"name": "s"}}
	external := object{"address": "[2001:db8::1]:8080", "protocol": "HTTPS", "tls": object{"serverName": "x"}}
	made, theirs := proxyOf(namespace, "made", object{"provider": "home"}), proxyOf(namespace, "theirs", object{"external": external, "auth": auth})
	for _, p := range []*unstructured.Unstructured{made, theirs} {
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	spec := made.Object["spec"].(object)
	if spec["port"] != int64(3128) || spec["mode"] != "Rotating" || spec["deletionPolicy"] != "Delete" {
		t.Errorf("defaults: %v", spec)
	}
	for name, change := range map[string]struct {
		of   *unstructured.Unstructured
		spec object
		says string
	}{
		"another provider":     {made, object{"provider": "other"}, "spec.provider is immutable"},
		"provider to external": {made, object{"external": external, "auth": auth}, "cannot change between provider and external"},
		"external to provider": {theirs, object{"provider": "home"}, "cannot change between provider and external"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := change.of.DeepCopy()
			changed.Object["spec"] = change.spec
			if err := c.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), change.says) {
				t.Errorf("got %v, want %q", err, change.says)
			}
		})
	}
	moved := theirs.DeepCopy()
	moved.Object["spec"].(object)["external"].(object)["address"] = "elsewhere.example:8080"
	if err := c.Update(t.Context(), moved); err != nil {
		t.Errorf("an external address is live: %v", err)
	}
}
