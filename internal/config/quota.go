// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// maxQuota is more than an entry can have.
const maxQuota = 1 << 30

// AllowsPinning says whether Proxies of that namespace may name their host.
func (e *Entry) AllowsPinning(namespace string) bool {
	return len(e.AllowPinning) == 0 || slices.Contains(e.AllowPinning, namespace)
}

// Quota is the one that holds for a namespace: the one that names it, or else the one for all.
func (e *Entry) Quota(namespace string) (*Quota, bool) {
	for _, wanted := range []string{namespace, AllNamespaces} {
		for i := range e.Quotas {
			if slices.Contains(e.Quotas[i].Namespaces, wanted) {
				return &e.Quotas[i], true
			}
		}
	}
	return nil, false
}

// validateAdmission checks who may use an entry, how, and how much of it.
func (d *document) validateAdmission(path string, e *Entry) {
	d.validateNamespaces(path+".allowedNamespaces", e.AllowedNamespaces)
	d.validateNamespaces(path+".allowPinning", e.AllowPinning)
	for i, ns := range e.AllowPinning {
		d.mayUse(item(path+".allowPinning", i), e, ns)
	}
	seen := map[string]string{}
	for i := range e.Quotas {
		at, q := item(path+".quotas", i), &e.Quotas[i]
		if len(q.Namespaces) == 0 {
			d.failf(at+".namespaces", `needs at least one namespace, or "*" for every one that no other quota names`)
		}
		for j, ns := range q.Namespaces {
			if on := item(at+".namespaces", j); ns != AllNamespaces {
				d.matches(on, ns, namespace, `the name of a namespace, or "*"`)
				d.mayUse(on, e, ns)
			}
			d.unique(seen, item(at+".namespaces", j), ns)
		}
		if q.Instances == nil && q.VCPUs == nil && q.MemoryMiB == nil {
			d.failf(at, "bounds nothing: give instances, vcpus or memoryMiB")
		}
		for _, bound := range []struct {
			key  string
			most *int64
		}{{"instances", q.Instances}, {"vcpus", q.VCPUs}, {"memoryMiB", q.MemoryMiB}} {
			if bound.most != nil {
				d.inRange(at+"."+bound.key, *bound.most, 0, maxQuota)
			}
			if bound.most != nil && bound.key != "instances" && !e.HasMachines() {
				d.failf(at+"."+bound.key, "is a size of machines, and an entry of type %s makes none: bound its instances", e.Type)
			}
		}
	}
}

// mayUse refuses a namespace that may not use the entry.
func (d *document) mayUse(at string, e *Entry, ns string) {
	if d.sound(at) && !e.AllowsNamespace(ns) {
		d.failf(at, "is not in allowedNamespaces: its Proxies cannot use the entry at all")
	}
}
