// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// demand is what an instance needs of a host.
type demand struct {
	// pin is the only host that will do, where it is not empty.
	pin       string
	memoryMiB int64
	// uid spreads what is equal otherwise.
	uid string
	// avoid says of some hosts why they will not do.
	avoid map[string]string
}

// minimumGiB is what a pool must have for an overlay to begin with.
const minimumGiB = 1

// choose picks the host for a new instance: one that is ready and has room, with the fewest instances and, among those, by the UID. Where
// there is none it says of each host why not.
func choose(d demand, hosts []provider.HostState) (host string, why string) {
	var candidates []provider.HostState
	var refusals refusals
	for _, h := range hosts {
		if d.pin != "" && h.Name != d.pin {
			continue
		}
		if unfit := unfitness(d, h); unfit != "" {
			refusals.add(h.Name, unfit)
			continue
		}
		candidates = append(candidates, h)
	}
	if len(candidates) == 0 {
		return "", refusals.String()
	}
	best := slices.MinFunc(candidates, func(a, b provider.HostState) int {
		return cmp.Or(cmp.Compare(a.Instances, b.Instances), cmp.Compare(lot(d.uid, a.Name), lot(d.uid, b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return best.Name, ""
}

// refusals are why hosts will not do, told once for all that have the same reason.
type refusals struct {
	reasons []string
	hosts   map[string][]string
}

func (r *refusals) add(host, reason string) {
	if r.hosts == nil {
		r.hosts = map[string][]string{}
	}
	if len(r.hosts[reason]) == 0 {
		r.reasons = append(r.reasons, reason)
	}
	r.hosts[reason] = append(r.hosts[reason], host)
}

func (r *refusals) String() string {
	if len(r.reasons) == 0 {
		return "the entry has no hosts"
	}
	all := make([]string, 0, len(r.reasons))
	for _, reason := range r.reasons {
		hosts := r.hosts[reason]
		word := "host "
		if len(hosts) > 1 {
			word = "hosts "
		}
		all = append(all, word+strings.Join(hosts, ", ")+": "+reason)
	}
	return strings.Join(all, "; ")
}

// unfitness is why an instance cannot go to a host, or empty.
func unfitness(d demand, h provider.HostState) string {
	switch {
	case h.Unschedulable:
		return "takes no new instances (schedulable: false)"
	case !h.Ready:
		return strings.TrimSuffix(h.Reason+": "+h.Message, ": ")
	case d.avoid[h.Name] != "":
		return d.avoid[h.Name]
	case h.MaxInstances > 0 && h.Instances >= h.MaxInstances:
		return fmt.Sprintf("has room for %d, and has %d", h.MaxInstances, h.Instances)
	case h.RoomKnown && h.FreeMemoryMiB < d.memoryMiB:
		return fmt.Sprintf("has %d MiB of memory free, %d are needed", h.FreeMemoryMiB, d.memoryMiB)
	case h.RoomKnown && h.PoolAvailableGiB < minimumGiB:
		return "its pool is full"
	}
	return ""
}

func lot(uid, host string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid + "/" + host))
	return hash.Sum64()
}
