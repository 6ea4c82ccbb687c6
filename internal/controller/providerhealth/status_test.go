// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ready(name string) provider.HostState {
	return provider.HostState{
		Name: name, Ready: true, Reason: provider.HostReady, Message: "takes instances", RoomKnown: true, PoolAvailableGiB: 100, PoolSeen: start,
		HostName: name + ".example", LibvirtVersion: "9.0.0", Instances: 2,
	}
}

func down(name, reason string) provider.HostState {
	return provider.HostState{Name: name, Reason: reason, Message: "no route"}
}

func TestReadiness(t *testing.T) {
	for name, test := range map[string]struct {
		states []provider.HostState
		status metav1.ConditionStatus
		reason string
		says   string
		hosts  string
	}{
		"all":  {[]provider.HostState{ready("a"), ready("b")}, metav1.ConditionTrue, v1alpha1.ReasonAllHostsReady, "2 of 2", "2/2"},
		"some": {[]provider.HostState{ready("a"), down("b", provider.HostTimeout)}, metav1.ConditionFalse, v1alpha1.ReasonSomeHostsNotReady, "not b: Timeout", "1/2"},
		"none": {[]provider.HostState{down("a", provider.HostIncapable)}, metav1.ConditionFalse, v1alpha1.ReasonNoHostReady, "a: Incapable", "0/1"},
		"not looked at yet": {
			[]provider.HostState{down("a", provider.HostUnknown), down("b", provider.HostUnknown)},
			metav1.ConditionUnknown, v1alpha1.ReasonHostsNotSeen, "looked at yet", "0/2",
		},
		"some not looked at yet":  {[]provider.HostState{down("a", provider.HostUnknown), ready("b")}, metav1.ConditionFalse, v1alpha1.ReasonSomeHostsNotReady, "not a: Unknown", "1/2"},
		"many that are not ready": {slices.Repeat([]provider.HostState{down("x", provider.HostTimeout)}, 9), metav1.ConditionFalse, v1alpha1.ReasonNoHostReady, "and 4 more", "0/9"},
	} {
		t.Run(name, func(t *testing.T) {
			s := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, test.states, nil, start)
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
			if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.says) || s.ReadyHosts != test.hosts {
				t.Errorf("got %+v, %s", c, s.ReadyHosts)
			}
			if len(s.Conditions) != 1 {
				t.Errorf("conditions %+v", s.Conditions)
			}
		})
	}
}

func TestOnlyWhatAPersonWouldActOnIsWritten(t *testing.T) {
	before := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, []provider.HostState{ready("a")}, nil, start)
	for name, test := range map[string]struct {
		change  func(*provider.HostState)
		changed bool
	}{
		"nothing":                              {func(*provider.HostState) {}, false},
		"seen again":                           {func(h *provider.HostState) { h.PoolSeen = h.PoolSeen.Add(time.Minute) }, false},
		"free memory":                          {func(h *provider.HostState) { h.FreeMemoryMiB = 12345 }, false},
		"a little room less":                   {func(h *provider.HostState) { h.PoolAvailableGiB -= 9 }, false},
		"a tenth less":                         {func(h *provider.HostState) { h.PoolAvailableGiB -= 10 }, true},
		"nothing left":                         {func(h *provider.HostState) { h.PoolAvailableGiB = 0 }, true},
		"another reason":                       {func(h *provider.HostState) { h.Ready, h.Reason = false, provider.HostTimeout }, true},
		"another message":                      {func(h *provider.HostState) { h.Message = "x" }, true},
		"one instance more":                    {func(h *provider.HostState) { h.Instances++ }, true},
		"a new libvirt":                        {func(h *provider.HostState) { h.LibvirtVersion = "10.0.0" }, true},
		"closed for new ones":                  {func(h *provider.HostState) { h.Unschedulable = true }, true},
		"a pool of which nothing is known now": {func(h *provider.HostState) { h.RoomKnown = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := ready("a")
			test.change(&h)
			after := statusOf("kvm2", before, []provider.HostState{h}, nil, start.Add(time.Hour))
			if diff := cmp.Diff(before, after); (diff != "") != test.changed {
				t.Errorf("changed: %q", diff)
			}
		})
	}
}

func TestLastChangeIsThatOfTheReason(t *testing.T) {
	s := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, []provider.HostState{ready("a")}, nil, start)
	h := ready("a")
	h.Message = "other words"
	s = statusOf("kvm2", s, []provider.HostState{h}, nil, start.Add(time.Minute))
	if !s.Hosts[0].LastChange.Time.Equal(start) {
		t.Errorf("%v after another message", s.Hosts[0].LastChange)
	}
	s = statusOf("kvm2", s, []provider.HostState{down("a", provider.HostUnreachable)}, nil, start.Add(2*time.Minute))
	if got := s.Hosts[0]; !got.LastChange.Time.Equal(start.Add(2*time.Minute)) || *got.PoolAvailableGiB != 100 || !got.PoolSeen.Time.Equal(start) {
		t.Errorf("%+v after another reason", got)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); !c.LastTransitionTime.Time.Equal(start.Add(2 * time.Minute)) {
		t.Errorf("%+v", c)
	}
}

func TestReasonsOfHostsAreShown(t *testing.T) {
	for _, reason := range []string{
		provider.HostReady, provider.HostUnknown, provider.HostUnreachable, provider.HostTimeout, provider.HostUnauthorized, provider.HostIncapable,
		provider.HostDegraded, provider.HostDuplicate,
	} {
		if got := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, []provider.HostState{down("a", reason)}, nil, start).Hosts[0]; got.Reason != reason || got.Message != "no route" {
			t.Errorf("%s is shown as %+v", reason, got)
		}
	}
}

// A host says what it likes; it is shown, and harms nobody.
func TestWhatHostsSayIsBounded(t *testing.T) {
	evil := strings.Repeat("ä\n\x1b[31m\xff", 5000)
	states := []provider.HostState{{Name: "a", Reason: "Invented", Message: evil, HostName: evil, LibvirtVersion: evil, PoolSeen: start, PoolAvailableGiB: -1}}
	h := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, states, nil, start).Hosts[0]
	if len(h.Message) > maxMessage || len(h.HostName) > maxHostName || len(h.LibvirtVersion) > maxVersion || strings.ContainsAny(h.Message, "\n") || h.Reason != provider.HostUnknown {
		t.Errorf("%+v", h)
	}
	if _, err := json.Marshal(h); err != nil {
		t.Error(err)
	}
	var many []provider.HostState
	for i := range maxHosts + 50 {
		many = append(many, ready(fmt.Sprint("h", i)))
	}
	s := statusOf("local", v1alpha1.ProviderHealthStatus{}, many, nil, start)
	if len(s.Hosts) != maxHosts || s.ReadyHosts != "1074/1074" {
		t.Errorf("%d hosts, %s", len(s.Hosts), s.ReadyHosts)
	}
}

func TestImagesHeld(t *testing.T) {
	moving := &provider.Error{Kind: provider.InProgress, Host: "b", Message: "10%"}
	for name, test := range map[string]struct {
		images imagesHeld
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"none to hold":        {nil, "", "", ""},
		"held":                {imagesHeld{{host: "a"}, {host: "b"}}, metav1.ConditionTrue, v1alpha1.ReasonHeld, "each of 2 hosts"},
		"on the way":          {imagesHeld{{host: "a"}, {host: "b", err: moving}}, metav1.ConditionFalse, v1alpha1.ReasonPulling, "on their way to b"},
		"a host is not ready": {imagesHeld{{host: "a", waits: true}, {host: "b"}}, metav1.ConditionFalse, v1alpha1.ReasonPulling, "until these hosts are ready: a"},
		"failed goes first": {
			imagesHeld{{host: "b", err: moving}, {host: "c", err: errors.New("host c: no room")}}, metav1.ConditionFalse, v1alpha1.ReasonPullFailed, "host c: no room",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, reason, message := test.images.condition()
			if status != test.status || reason != test.reason || !strings.Contains(message, test.says) {
				t.Errorf("%s %s %q", status, reason, message)
			}
		})
	}
	held := statusOf("kvm2", v1alpha1.ProviderHealthStatus{}, []provider.HostState{ready("a")}, imagesHeld{{host: "a"}}, start)
	none := statusOf("kvm2", held, []provider.HostState{ready("a")}, nil, start)
	if len(held.Conditions) != 2 || len(none.Conditions) != 1 {
		t.Errorf("%+v\n%+v", held.Conditions, none.Conditions)
	}
}
