// SPDX-License-Identifier: Apache-2.0

package up

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/config/samples"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/background"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

func TestSamples(t *testing.T) {
	proxies, err := Samples(samples.Local)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range proxies {
		names = append(names, p.Namespace+"/"+p.Name+" of "+p.Spec.Provider)
	}
	if diff := cmp.Diff([]string{"default/exit-a of local", "default/exit-b of local", "default/exit-c of local"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestQuote(t *testing.T) {
	for _, word := range []string{"plain/word-1.2", "two words", "it's", "", "$HOME `date` \"x\" \\", "a\nb", "~"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q became %q (%v)", word, out, err)
		}
	}
	if got := quote("/usr/bin/kubectl"); got != "/usr/bin/kubectl" {
		t.Errorf("a plain word is quoted: %s", got)
	}
}

func TestHintsHoldNoPassword(t *testing.T) {
	paths, err := datadir.Resolve("/data dir")
	if err != nil {
		t.Fatal(err)
	}
	proxy := v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "exit-a"}}
	proxy.Status.Endpoint, proxy.Status.CredentialsSecret = "127.0.0.12:3128", "exit-a-credentials"
	t.Setenv("PATH", "")
	t.Setenv("no_proxy", "127.0.0.0/8")
	text := hints(Options{Server: background.Server{Paths: paths, Executable: "/opt/egress-standalone"}, Target: "http://127.0.0.11:8910/"}, []v1alpha1.Proxy{proxy})
	for _, want := range []string{
		"\n  /data dir/kubeconfig\n",
		"\n  /opt/egress-standalone --data-dir '/data dir' kubectl get proxies\n",
		`  curl -x http://127.0.0.12:3128 --noproxy '' --proxy-user "$(/opt/egress-standalone --data-dir '/data dir' kubectl get secret exit-a-credentials -n default `,
		"\" http://127.0.0.11:8910/\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestNotServing(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "exit-a"}}
	proxy.Status.Endpoint = listener.Addr().String()
	if waiting := notServing(t.Context(), []v1alpha1.Proxy{proxy}); len(waiting) != 0 {
		t.Errorf("a proxy that listens: %q", waiting)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if waiting := notServing(t.Context(), []v1alpha1.Proxy{proxy}); len(waiting) != 1 || !strings.Contains(waiting[0], "exit-a: it does not answer") {
		t.Errorf("one that does not: %q", waiting)
	}
}

func TestNotReady(t *testing.T) {
	proxy := func(name string, generation, observed int64, status metav1.ConditionStatus) v1alpha1.Proxy {
		p := v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
		p.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: status, ObservedGeneration: observed, Reason: "Why", Message: "because",
		}}
		return p
	}
	got := notReady([]v1alpha1.Proxy{
		proxy("good", 1, 1, metav1.ConditionTrue), proxy("bad", 1, 1, metav1.ConditionFalse), proxy("changed", 2, 1, metav1.ConditionTrue),
		{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	})
	want := []string{"Proxy bad: Why: because", "Proxy changed: Why: because", "Proxy new: nothing is known yet"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
