// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Defaults of what a providers file leaves out.
const (
	DefaultProbeInterval    = Duration(30 * time.Second)
	DefaultProbeTimeout     = Duration(5 * time.Second)
	DefaultFailureThreshold = 3
	DefaultSuccessThreshold = 1

	DefaultUser   = "root"
	DefaultSocket = "/var/run/libvirt/libvirt-sock"
	DefaultPool   = "default"

	DefaultVCPUs          = 1
	DefaultMemoryMiB      = 512
	DefaultDiskSizeGb     = 4
	DefaultPoolReserveGiB = 2
	DefaultMaxImageBytes  = 16 << 30

	DefaultCapacity = 100
	DefaultBootTime = Duration(2 * time.Second)

	DefaultArch     = ArchX8664
	DefaultFirmware = FirmwareBIOS
	DefaultDigestOf = DigestOfServed

	DefaultImageSpoolGiB = 20
)

// fill sets a value that the file does not have; one that it has stands, however wrong.
func fill[T any](d *document, path string, value *T, fallback T) {
	if !d.has(path) {
		*value = fallback
	}
}

func (d *document) applyDefaults(f *File) {
	fill(d, "probe.interval", &f.Probe.Interval, DefaultProbeInterval)
	fill(d, "probe.timeout", &f.Probe.Timeout, DefaultProbeTimeout)
	fill(d, "probe.failureThreshold", &f.Probe.FailureThreshold, DefaultFailureThreshold)
	fill(d, "probe.successThreshold", &f.Probe.SuccessThreshold, DefaultSuccessThreshold)
	fill(d, "imageSpoolGiB", &f.ImageSpoolGiB, new(int64(DefaultImageSpoolGiB)))
	for i := range f.Entries {
		d.entryDefaults(item("entries", i), &f.Entries[i])
	}
}

func (d *document) entryDefaults(path string, e *Entry) {
	if e.Type != TypeLocal {
		fill(d, path+".defaults.vcpus", &e.Defaults.VCPUs, DefaultVCPUs)
		fill(d, path+".defaults.memoryMiB", &e.Defaults.MemoryMiB, DefaultMemoryMiB)
		fill(d, path+".defaults.diskSizeGb", &e.Defaults.DiskSizeGb, DefaultDiskSizeGb)
	}
	for i := range e.Hosts {
		fill(d, item(path+".hosts", i)+".schedulable", &e.Hosts[i].Schedulable, new(true))
	}
	switch meantType(e.Type) {
	case TypeKVM2:
		d.kvm2Defaults(path, e)
	case TypeLocal:
		fill(d, path+".listen", &e.Listen, ListenLoopback)
	case TypeSimulated:
		for i := range e.Hosts {
			at, h := item(path+".hosts", i), &e.Hosts[i]
			fill(d, at+".capacity", &h.Capacity, DefaultCapacity)
			fill(d, at+".bootTime", &h.BootTime, DefaultBootTime)
		}
	}
}

func (d *document) kvm2Defaults(path string, e *Entry) {
	fill(d, path+".poolReserveGiB", &e.PoolReserveGiB, new(int64(DefaultPoolReserveGiB)))
	fill(d, path+".maxImageBytes", &e.MaxImageBytes, DefaultMaxImageBytes)
	for i := range e.Hosts {
		at, h := item(path+".hosts", i), &e.Hosts[i]
		fill(d, at+".user", &h.User, DefaultUser)
		fill(d, at+".socket", &h.Socket, DefaultSocket)
		fill(d, at+".pool", &h.Pool, DefaultPool)
		for j := range h.Jump {
			fill(d, item(at+".jump", j)+".user", &h.Jump[j].User, DefaultUser)
		}
	}
	for key, image := range e.Images {
		at := child(path+".images", key)
		fill(d, at+".arch", &image.Arch, DefaultArch)
		fill(d, at+".firmware", &image.Firmware, DefaultFirmware)
		fill(d, at+".digestOf", &image.DigestOf, DefaultDigestOf)
		e.Images[key] = image
		if len(e.Images) == 1 {
			fill(d, path+".defaultImage", &e.DefaultImage, key)
		}
	}
}
