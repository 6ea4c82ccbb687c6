// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func proxy(name string, ready metav1.ConditionStatus, reason, message string) v1alpha1.Proxy {
	return v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec:       v1alpha1.ProxySpec{Provider: "home"},
		Status: v1alpha1.ProxyStatus{Host: "attic", Endpoint: "10.88.1.7:3128", ExitIPs: []string{"203.0.113.7"}, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason, Message: message, LastTransitionTime: ago(3 * time.Minute)},
		}},
	}
}

func sample() Overview {
	room := int64(40)
	health := v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Name: "home"}, Status: v1alpha1.ProviderHealthStatus{
		Type: "kvm2",
		Hosts: []v1alpha1.HostHealth{
			{Name: "attic", Reason: "Ready", LastChange: ago(26 * time.Hour), Instances: 2, PoolAvailableGiB: &room},
			{Name: "cellar", Reason: "Unreachable", Message: "host cellar:\nno route", LastChange: ago(10 * time.Second)},
			{Name: "loft", Reason: "Ready", Unschedulable: true, LastChange: ago(26 * time.Hour)},
		},
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"},
			{Type: v1alpha1.ConditionCollectorStopped, Status: metav1.ConditionTrue, Reason: "TooManyLeftovers", Message: "8 instances without a Proxy", LastTransitionTime: ago(time.Hour)},
		},
	}}
	waiting := v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "new", CreationTimestamp: ago(time.Second)}}
	cordoned := proxy("aside", metav1.ConditionFalse, "Cordoned", "")
	cordoned.Spec.Cordoned = true
	return Of([]v1alpha1.ProviderHealth{health}, []v1alpha1.Proxy{
		proxy("good", metav1.ConditionTrue, "Ready", ""), waiting, cordoned, proxy("bad", metav1.ConditionFalse, "PortClosed", strings.Repeat("long ", 60)),
	})
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := sample().Table(&out, Style{Now: now}); err != nil {
		t.Fatal(err)
	}
	want := `2 of 3 hosts ready, 1 of 4 proxies ready

ENTRY   HOST     STATE                 INSTANCES   POOL FREE   FOR   MESSAGE
home    cellar   Unreachable           0           -           10s   host cellar: no route
home    attic    Ready                 2           40 GiB      26h   -
home    loft     Ready,Unschedulable   0           -           26h   -

NAMESPACE   PROXY   STATE        ENTRY      HOST    EXIT          ENDPOINT         FOR   MESSAGE
team-a      aside   Cordoned     home       attic   203.0.113.7   10.88.1.7:3128   3m    -
team-a      bad     PortClosed   home       attic   203.0.113.7   10.88.1.7:3128   3m    ` + strings.Repeat("long ", 31) + `long…
team-b      new     NotSeen      external   -       -             -                1s    no operator has looked at it yet

home: CollectorStopped for 60m (TooManyLeftovers): 8 instances without a Proxy
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTableOfAllInColours(t *testing.T) {
	var out bytes.Buffer
	if err := sample().Table(&out, Style{Now: now, All: true, Colours: true}); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(out.String()) {
		for _, name := range []string{"cellar", "attic ", "loft", "aside", "bad", "good"} {
			if strings.Contains(line, name) && lines[name] == "" {
				lines[name] = line
			}
		}
	}
	for name, colour := range map[string]string{"cellar": red, "loft": yellow, "aside": yellow, "bad": red, "good": ""} {
		line := lines[name]
		if line == "" || !strings.HasPrefix(line, colour) || colour == "" && strings.Contains(line, "\x1b") {
			t.Errorf("%s: %q", name, line)
		}
	}
}

func TestJSONOfNothingHasEmptyLists(t *testing.T) {
	got, err := json.Marshal(Of(nil, nil))
	if err != nil || string(got) != `{"hosts":[],"proxies":[]}` {
		t.Errorf("%s %v", got, err)
	}
}
