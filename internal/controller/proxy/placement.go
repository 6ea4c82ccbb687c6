// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// demand is what an instance needs of a host.
type demand struct {
	// pin is the only host that will do, where it is not empty.
	pin       string
	memoryMiB int64
	vcpus     int
	// image is the key of what it boots; empty for an image that the Proxy brings.
	image string
	// uid spreads what is equal otherwise.
	uid string
	// avoid says of some hosts why they will not do.
	avoid map[string]string
}

// load is what Proxies have of a host by the controller's own count, which the host itself may not show yet.
type load struct {
	// instances and their vcpus, all that are placed there.
	instances, vcpus int
	// starting instances, which the host's figures do not contain, and the memory that they will take.
	starting          int64
	startingMemoryMiB int64
}

// firstBootMiB is what a pool must have for each instance to begin with: what its guest writes as it boots, and its seed.
const firstBootMiB = 257

// choose picks the host for a new instance: one that is ready and has room, with the fewest instances and, among those, by the UID. Where
// there is none it says of each host why not.
func choose(d demand, hosts []provider.HostState, loads map[string]load) (host string, why string) {
	var best provider.HostState
	var refusals refusals
	for _, h := range hosts {
		if d.pin != "" && h.Name != d.pin {
			continue
		}
		h.Instances = max(h.Instances, loads[h.Name].instances)
		if unfit := unfitness(d, h, loads[h.Name]); unfit != "" {
			refusals.add(h.Name, unfit)
			continue
		}
		if best.Name == "" || before(d, h, best) {
			best = h
		}
	}
	if best.Name == "" {
		return "", refusals.String()
	}
	return best.Name, ""
}

// before says that an instance goes rather to a than to b.
func before(d demand, a, b provider.HostState) bool {
	return cmp.Or(cmp.Compare(a.Instances, b.Instances), cmp.Compare(lot(d.uid, a.Name), lot(d.uid, b.Name)), cmp.Compare(a.Name, b.Name)) < 0
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

// helpless says that there are hosts where the instance may go, and that each lacks something that it needs: somebody has to change one of them.
func helpless(d demand, hosts []provider.HostState) bool {
	may := false
	for _, h := range hosts {
		if h.Unschedulable || d.pin != "" && h.Name != d.pin {
			continue
		}
		if h.Lacks[d.image] == "" && (h.Ready || h.Reason != provider.HostIncapable) {
			return false
		}
		may = true
	}
	return may
}

// unfitness is why an instance cannot go to a host, or empty.
func unfitness(d demand, h provider.HostState, l load) string {
	freeMemory, freePool := h.FreeMemoryMiB-l.startingMemoryMiB, h.PoolAvailableGiB<<10-l.starting*firstBootMiB
	switch {
	case h.Unschedulable:
		return "takes no new instances (schedulable: false)"
	case !h.Ready:
		return strings.TrimSuffix(h.Reason+": "+h.Message, ": ")
	case h.Lacks[d.image] != "":
		return "cannot run its image, and lacks " + h.Lacks[d.image]
	case d.avoid[h.Name] != "":
		return d.avoid[h.Name]
	case h.MaxInstances > 0 && h.Instances >= h.MaxInstances:
		return fmt.Sprintf("has room for %d, and has %d", h.MaxInstances, h.Instances)
	case h.CPUs > 0 && d.vcpus > h.CPUs:
		return fmt.Sprintf("has %d processors, %d are needed", h.CPUs, d.vcpus)
	case h.MaxVCPUs > 0 && l.vcpus+d.vcpus > h.MaxVCPUs:
		return fmt.Sprintf("lets its guests have %d vCPUs (maxVCPUs), of which %d are taken, and %d are needed", h.MaxVCPUs, l.vcpus, d.vcpus)
	case h.RoomKnown && freeMemory < d.memoryMiB:
		return fmt.Sprintf("has %d MiB of memory free%s, %d are needed", max(freeMemory, 0), besides(l), d.memoryMiB)
	case h.RoomKnown && freePool < firstBootMiB:
		return "its pool is full" + besides(l)
	}
	return ""
}

// besides says what was taken off.
func besides(l load) string {
	if l.starting == 0 {
		return ""
	}
	return fmt.Sprintf(" besides what %d instances that start there will take", l.starting)
}

func lot(uid, host string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid + "/" + host))
	return hash.Sum64()
}
