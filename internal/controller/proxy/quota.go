// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// usage is what the placed Proxies of one namespace have of an entry.
type usage struct {
	instances, vcpus int
	memoryMiB        int64
}

// overQuota says how one more instance would take a namespace beyond its quota of an entry; empty where it would not.
func overQuota(entry *config.Entry, namespace string, d demand, u usage) string {
	q, ok := entry.Quota(namespace)
	if !ok {
		return ""
	}
	for _, bound := range []struct {
		what          string
		most          *int64
		has, oneNeeds int64
	}{
		{"instances", q.Instances, int64(u.instances), 1},
		{"vCPUs", q.VCPUs, int64(u.vcpus), int64(d.vcpus)},
		{"MiB of memory", q.MemoryMiB, u.memoryMiB, d.memoryMiB},
	} {
		if bound.most != nil && bound.has+bound.oneNeeds > *bound.most {
			return fmt.Sprintf("namespace %s may have %d %s of entry %s, and has %d; this Proxy needs %d: delete another, or have the quota raised",
				namespace, *bound.most, bound.what, entry.Name, bound.has, bound.oneNeeds)
		}
	}
	return ""
}
