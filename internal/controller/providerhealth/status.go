// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

// What the schema takes.
const (
	maxHosts    = 1024
	maxMessage  = 1024
	maxHostName = 253
	maxVersion  = 32
	maxVia      = 128
	maxNamed    = 5
)

// hostReasons are the reasons that the schema takes.
var hostReasons = []string{
	provider.HostReady, provider.HostUnknown, provider.HostUnreachable, provider.HostTimeout, provider.HostUnauthorized, provider.HostIncapable,
	provider.HostDegraded, provider.HostDuplicate,
}

// statusOf is the status of an entry's ProviderHealth by what its provider last saw. What is in old and did not change in a way that a person would
// act on stays to the byte.
func statusOf(kind string, old v1alpha1.ProviderHealthStatus, states []provider.HostState, images imagesHeld, now time.Time) v1alpha1.ProviderHealthStatus {
	next := v1alpha1.ProviderHealthStatus{Type: kind, Collector: old.Collector}
	for _, c := range old.Conditions {
		next.Conditions = append(next.Conditions, *c.DeepCopy())
	}
	before := map[string]v1alpha1.HostHealth{}
	for _, h := range old.Hosts {
		before[h.Name] = h
	}
	ready := 0
	for i, s := range states {
		if s.Ready {
			ready++
		}
		next.Instances += int32(s.Instances)
		if i < maxHosts {
			next.Hosts = append(next.Hosts, hostOf(before[s.Name], s, now))
		}
	}
	next.ReadyHosts = fmt.Sprintf("%d/%d", ready, len(states))
	status, reason, message := readiness(states)
	set(&next.Conditions, v1alpha1.ConditionReady, status, reason, message, now)
	if status, reason, message := images.condition(); reason != "" {
		set(&next.Conditions, v1alpha1.ConditionImagesHeld, status, reason, message, now)
	} else {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionImagesHeld)
	}
	return next
}

// hostOf is one host's part.
func hostOf(old v1alpha1.HostHealth, s provider.HostState, now time.Time) v1alpha1.HostHealth {
	h := v1alpha1.HostHealth{
		Name: s.Name, Reason: s.Reason, Message: bounded(s.Message, maxMessage), LastChange: old.LastChange, Unschedulable: s.Unschedulable,
		HostName: bounded(s.HostName, maxHostName), LibvirtVersion: bounded(s.LibvirtVersion, maxVersion), Via: bounded(s.Via, maxVia), Instances: int32(s.Instances),
		PoolAvailableGiB: old.PoolAvailableGiB, PoolSeen: old.PoolSeen,
	}
	if !slices.Contains(hostReasons, h.Reason) {
		h.Reason = provider.HostUnknown
	}
	if old.Reason != h.Reason {
		h.LastChange = second(now)
	}
	if !s.PoolSeen.IsZero() && (h.PoolAvailableGiB == nil || h.PoolSeen == nil || worthTelling(*h.PoolAvailableGiB, s.PoolAvailableGiB)) {
		room, seen := s.PoolAvailableGiB, second(s.PoolSeen)
		h.PoolAvailableGiB, h.PoolSeen = &room, &seen
	}
	return h
}

// worthTelling says whether a person would act on a pool's change: a tenth of what it was, or that there is nothing left.
func worthTelling(old, now int64) bool {
	if old == now {
		return false
	}
	return old == 0 || now == 0 || max(old-now, now-old)*10 >= old
}

// second is a time as the API keeps it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// readiness is the condition Ready of an entry.
func readiness(states []provider.HostState) (metav1.ConditionStatus, string, string) {
	var ready, seen int
	var wrong []string
	for _, s := range states {
		if s.Reason != provider.HostUnknown {
			seen++
		}
		if s.Ready {
			ready++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %s", s.Name, s.Reason))
	}
	switch {
	case ready == len(states):
		return metav1.ConditionTrue, v1alpha1.ReasonAllHostsReady, fmt.Sprintf("%d of %d hosts take new instances", ready, len(states))
	case seen == 0:
		return metav1.ConditionUnknown, v1alpha1.ReasonHostsNotSeen, "no host has been looked at yet"
	}
	message := fmt.Sprintf("%d of %d hosts take new instances; not %s", ready, len(states), some(wrong))
	if ready == 0 {
		return metav1.ConditionFalse, v1alpha1.ReasonNoHostReady, message
	}
	return metav1.ConditionFalse, v1alpha1.ReasonSomeHostsNotReady, message
}

// some names the first few.
func some(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
}

// set a condition; the time of its last transition stays while its status does.
func set(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: bounded(message, maxMessage), LastTransitionTime: second(now),
	})
}

// bounded cuts a text, which a host may have supplied, to what the schema takes, on one line.
func bounded(s string, most int) string {
	return text.Shorten(text.Line(s), most)
}
