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
	var reasons []string
	for _, h := range hosts {
		if d.pin != "" && h.Name != d.pin {
			continue
		}
		if unfit := unfitness(d, h); unfit != "" {
			reasons = append(reasons, fmt.Sprintf("host %s: %s", h.Name, unfit))
			continue
		}
		candidates = append(candidates, h)
	}
	if len(candidates) == 0 {
		if len(reasons) == 0 {
			return "", "the entry has no hosts"
		}
		return "", strings.Join(reasons, "; ")
	}
	best := slices.MinFunc(candidates, func(a, b provider.HostState) int {
		return cmp.Or(cmp.Compare(a.Instances, b.Instances), cmp.Compare(lot(d.uid, a.Name), lot(d.uid, b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return best.Name, ""
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
