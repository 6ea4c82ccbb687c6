// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// ours are the collectors that the operator registers.
func ours() []prometheus.Collector {
	collectors, images, files, calls := observedCollector().(collectorMetrics), observedImages().(*imageMetrics), observedFiles(), observedCalls()
	return []prometheus.Collector{
		collectors.collected, collectors.kept, collectors.failed, collectors.vanished, collectors.foreign, collectors.stopped,
		images.fetches, images.seconds, images.stored, images.received, images.spooled, files.reloads, files.refused, calls.calls, observedStates(),
	}
}

func TestEveryFigureIsInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	seen := 0
	for _, c := range ours() {
		descs := make(chan *prometheus.Desc, 16)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			name := strings.Split(d.String(), `"`)[1]
			seen++
			if !strings.Contains(string(page), "`"+name+"{") && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/metrics.md does not have %s", name)
			}
			kind := "gauge"
			if strings.HasSuffix(name, "_total") {
				kind = "counter"
			}
			if strings.HasSuffix(name, "_seconds") {
				continue // a histogram has more than one line
			}
			help := strings.Split(d.String(), `"`)[3]
			text.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n" + name + " 1\n")
		}
	}
	if seen < 15 {
		t.Errorf("only %d figures", seen)
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %+v", err, problems)
	}
}

func TestProxiesAreCountedByReason(t *testing.T) {
	ready := v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{Provider: "home"}, Status: v1alpha1.ProxyStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady},
	}}}
	got := countProxies([]v1alpha1.Proxy{ready, ready, {}})
	want := map[[3]string]int{{"home", "True", "Ready"}: 2, {"external", "Unknown", "Pending"}: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
