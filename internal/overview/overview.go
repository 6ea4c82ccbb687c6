// SPDX-License-Identifier: Apache-2.0

// Package overview is what the operator's objects say of hosts and proxies, put together for people on call: what is wrong first.
package overview

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Overview of an installation. Its JSON is for programs: fields are added, and never change their meaning.
type Overview struct {
	// Hosts in the order of their entries, what is not ready first.
	Hosts []Host `json:"hosts"`
	// Proxies, what is not ready first, then by namespace and name.
	Proxies []Proxy `json:"proxies"`
	// Notes are what somebody has to decide: an entry whose collector stopped, say.
	Notes []Note `json:"notes,omitempty"`
}

// Host of an entry.
type Host struct {
	Entry            string      `json:"entry"`
	Type             string      `json:"type"`
	Name             string      `json:"name"`
	Reason           string      `json:"reason"`
	Message          string      `json:"message,omitempty"`
	Since            metav1.Time `json:"since"`
	Unschedulable    bool        `json:"unschedulable,omitempty"`
	Instances        int32       `json:"instances"`
	PoolAvailableGiB *int64      `json:"poolAvailableGiB,omitempty"`
}

// Ready hosts take new instances.
func (h Host) Ready() bool { return h.Reason == provider.HostReady }

// Proxy is one exit.
type Proxy struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Ready     bool        `json:"ready"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message,omitempty"`
	Since     metav1.Time `json:"since"`
	Entry     string      `json:"entry,omitempty"`
	Host      string      `json:"host,omitempty"`
	Endpoint  string      `json:"endpoint,omitempty"`
	ExitIPs   []string    `json:"exitIPs,omitempty"`
	Cordoned  bool        `json:"cordoned,omitempty"`
	Deleting  bool        `json:"deleting,omitempty"`
}

// Note is a condition of an entry that waits for somebody.
type Note struct {
	Entry   string      `json:"entry"`
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message,omitempty"`
	Since   metav1.Time `json:"since"`
}

// Of puts objects together as they are now.
func Of(healths []v1alpha1.ProviderHealth, proxies []v1alpha1.Proxy) Overview {
	o := Overview{Hosts: []Host{}, Proxies: []Proxy{}}
	for _, health := range healths {
		o.Hosts = append(o.Hosts, hostsOf(health)...)
		o.Notes = append(o.Notes, notesOf(health)...)
	}
	for _, p := range proxies {
		o.Proxies = append(o.Proxies, proxyOf(p))
	}
	slices.SortStableFunc(o.Hosts, func(a, b Host) int {
		return cmp.Or(notReadyFirst(a.Ready(), b.Ready()), cmp.Compare(a.Entry, b.Entry))
	})
	slices.SortFunc(o.Proxies, func(a, b Proxy) int {
		return cmp.Or(notReadyFirst(a.Ready, b.Ready), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return o
}

func hostsOf(health v1alpha1.ProviderHealth) (all []Host) {
	for _, h := range health.Status.Hosts {
		all = append(all, Host{
			Entry: health.Name, Type: health.Status.Type, Name: h.Name, Reason: h.Reason, Message: h.Message, Since: h.LastChange,
			Unschedulable: h.Unschedulable, Instances: h.Instances, PoolAvailableGiB: h.PoolAvailableGiB,
		})
	}
	return all
}

// notesOf are an entry's conditions beside Ready that are not as they should be.
func notesOf(health v1alpha1.ProviderHealth) (all []Note) {
	for _, c := range health.Status.Conditions {
		if c.Type == v1alpha1.ConditionImagesHeld && c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionCollectorStopped && c.Status == metav1.ConditionTrue {
			all = append(all, Note{health.Name, c.Type, c.Reason, c.Message, c.LastTransitionTime})
		}
	}
	return all
}

func proxyOf(p v1alpha1.Proxy) Proxy {
	entry := cmp.Or(p.Spec.Provider, "external")
	out := Proxy{
		Namespace: p.Namespace, Name: p.Name, Reason: "NotSeen", Message: "no operator has looked at it yet", Since: p.CreationTimestamp,
		Entry: entry, Host: p.Status.Host, Endpoint: p.Status.Endpoint, ExitIPs: p.Status.ExitIPs,
		Cordoned: p.Spec.Cordoned, Deleting: !p.DeletionTimestamp.IsZero(),
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		out.Ready, out.Reason, out.Message, out.Since = c.Status == metav1.ConditionTrue, c.Reason, c.Message, c.LastTransitionTime
	}
	return out
}

func notReadyFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// readyHosts and readyProxies count.
func (o Overview) readyHosts() (n int) {
	for _, h := range o.Hosts {
		if h.Ready() {
			n++
		}
	}
	return n
}

func (o Overview) readyProxies() (n int) {
	for _, p := range o.Proxies {
		if p.Ready {
			n++
		}
	}
	return n
}
