// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/reflector"
)

// simulatedFile is a providers file with an entry for each loopback network.
func simulatedFile(seen string, networks map[string]string) string {
	file := "version: 1\nreflectors:\n  - url: " + seen + "/\nentries:\n"
	for _, name := range []string{"reload-a", "reload-b"} {
		if network := networks[name]; network != "" {
			file += "  - {name: " + name + ", type: simulated, hosts: [{name: " + name + "-1, addresses: " + network + ", bootTime: 10ms}]}\n"
		}
	}
	return file
}

func TestTheProvidersFileIsFollowed(t *testing.T) {
	seen := httptest.NewServer(reflector.Handler(slog.New(slog.DiscardHandler)))
	t.Cleanup(seen.Close)
	path := write(t, "providers.yaml", simulatedFile(seen.URL, map[string]string{"reload-a": "127.61.1.0/24"}))
	put := func(content string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	r := runOperator(t, path)
	first, second := r.create("first", "reload-a"), r.create("second", "reload-b")
	isReady := func(p *v1alpha1.Proxy) func() bool {
		return func() bool { return meta.IsStatusConditionTrue(r.read(p).Status.Conditions, v1alpha1.ConditionReady) }
	}
	r.until("ready", isReady(first))
	since := meta.FindStatusCondition(first.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	put("version: 1\nentries: nonsense\n")
	r.until("refused", func() bool { return r.told("reload-a", v1alpha1.ReasonFileRefused) })
	put(simulatedFile(seen.URL, map[string]string{"reload-a": "127.61.1.0/24", "reload-b": "127.61.2.0/24"}))
	r.until("ready with the new entry", isReady(second))
	r.until("told", func() bool { return r.told("reload-a", v1alpha1.ReasonFileInForce) })
	ready := meta.FindStatusCondition(r.read(first).Status.Conditions, v1alpha1.ConditionReady)
	if ready.Status != "True" || !ready.LastTransitionTime.Equal(&since) {
		t.Errorf("the Proxy of the entry that did not change: %+v, Ready since %s before", ready, since)
	}

	t.Run("status shows them", func(t *testing.T) {
		var out safeBuffer
		if code := Run(t.Context(), []string{"status", "--kubeconfig", r.kubeconfig, "-n", r.namespace, "--all"}, &out, &out); code != ExitOK {
			t.Fatalf("exit code %d: %s", code, &out)
		}
		for _, want := range []string{"2 of 2 proxies ready", "reload-a-1", "reload-b-1", "127.61.2.", "second"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("lacks %q:\n%s", want, &out)
			}
		}
	})
	t.Run("nobody gives up on a Proxy that is not being deleted", func(t *testing.T) {
		var out safeBuffer
		code := Run(t.Context(), []string{"abandon", "--kubeconfig", r.kubeconfig, "-n", r.namespace, "first", "--yes"}, &out, &out)
		if code != ExitFailed || !strings.Contains(out.String(), "is not being deleted") {
			t.Errorf("exit code %d: %s", code, &out)
		}
	})
	for _, p := range []*v1alpha1.Proxy{first, second} {
		if err := r.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	r.end()
}
