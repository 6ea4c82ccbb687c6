// SPDX-License-Identifier: Apache-2.0

package provider

import "fmt"

// Bounds of a machine; the providers file and the API have the same.
const (
	maxVCPUs     = 64
	minMemoryMiB = 64
	maxMemoryMiB = 262_144
	maxDiskGiB   = 4096
	maxPort      = 65_535
)

// CheckMachine refuses, as Permanent, sizes and a port that no machine can have: the schema refuses them first, and this is for what came
// around the schema.
func (s InstanceSpec) CheckMachine() *Error {
	for _, b := range []struct {
		field          string
		value, min, to int
	}{
		{"vcpus", s.VCPUs, 1, maxVCPUs},
		{"memoryMiB", s.MemoryMiB, minMemoryMiB, maxMemoryMiB},
		{"diskSizeGb", s.DiskSizeGiB, 1, maxDiskGiB},
		{"port", s.Port, 1, maxPort},
	} {
		if b.value < b.min || b.value > b.to {
			return &Error{
				Kind: Permanent, Host: s.Host, Message: fmt.Sprintf("%s is %d", b.field, b.value), Next: fmt.Sprintf("set it to %d to %d", b.min, b.to),
			}
		}
	}
	return nil
}

// MachineFields are the fields of a Proxy's spec that stand in the shape and that only a machine has.
func (s Shape) MachineFields() []string {
	var fields []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"placement.image", s.Image != Image{}}, {"placement.vcpus", s.VCPUs != 0}, {"placement.memoryMiB", s.MemoryMiB != 0},
		{"placement.diskSizeGb", s.DiskSizeGiB != 0},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}
