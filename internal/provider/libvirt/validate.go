// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Bounds of a guest; the providers file and the API have the same.
const (
	maxVCPUs     = 64
	minMemoryMiB = 64
	maxMemoryMiB = 262_144
	maxDiskGiB   = 4096
	maxPort      = 65_535
)

// checkShape refuses what no host can make: the schema refuses it first, and this is for what came around the schema.
func checkShape(spec provider.InstanceSpec) *provider.Error {
	for _, b := range []struct {
		field          string
		value, min, to int
	}{
		{"vcpus", spec.VCPUs, 1, maxVCPUs},
		{"memoryMiB", spec.MemoryMiB, minMemoryMiB, maxMemoryMiB},
		{"diskSizeGb", spec.DiskSizeGiB, 1, maxDiskGiB},
		{"port", spec.Port, 1, maxPort},
	} {
		if b.value < b.min || b.value > b.to {
			return &provider.Error{
				Kind: provider.Permanent, Message: fmt.Sprintf("%s is %d", b.field, b.value),
				Next: fmt.Sprintf("set it to %d to %d", b.min, b.to),
			}
		}
	}
	switch spec.Software {
	case provider.SoftwareAgent, provider.SoftwareCloudInit, provider.SoftwareNone:
		return nil
	}
	return &provider.Error{Kind: provider.Permanent, Message: fmt.Sprintf("software type %q is not known", spec.Software), Next: "set it to Agent, CloudInit or None"}
}
