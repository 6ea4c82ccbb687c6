// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Guest is what a host offers for an image: how its guest is run.
type Guest struct {
	// VirtType is kvm or qemu.
	VirtType string
	// Arch is x86_64 or aarch64, Machine q35 or virt.
	Arch, Machine string
	// EFI firmware, or the BIOS.
	EFI bool
}

// domainSpec is what a definition is made from.
type domainSpec struct {
	Name, UUID, Title string
	Guest             Guest
	VCPUs, MemoryMiB  int
	// Overlay, Seed and Agent are paths on the host; Agent may be empty.
	Overlay, Seed, Agent string
	MAC                  string
	// Network of libvirt, or Bridge.
	Network, Bridge string
	// Mark is the element of the metadata.
	Mark string
}

// definition renders a domain. Disks are virtio and of type file: q35 has no IDE, some guests have no AHCI, and AppArmor denies
// type volume on some hosts.
func definition(s domainSpec) (string, error) {
	d := &libvirtxml.Domain{
		Type: s.Guest.VirtType, Name: s.Name, UUID: s.UUID, Title: strings.Join(strings.Fields(s.Title), " "),
		Metadata: &libvirtxml.DomainMetadata{XML: s.Mark},
		Memory:   &libvirtxml.DomainMemory{Value: uint(s.MemoryMiB), Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Value: uint(s.VCPUs)},
		OS:       operatingSystem(s.Guest),
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}},
		CPU:      &libvirtxml.DomainCPU{Mode: cpuMode(s.Guest)},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// A guest that crashed is off and says so; Create starts it again.
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: devices(s),
	}
	if s.Guest.Arch == archX86 {
		d.Features.APIC = &libvirtxml.DomainFeatureAPIC{}
	}
	return d.Marshal()
}

func operatingSystem(g Guest) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type:        &libvirtxml.DomainOSType{Type: "hvm", Arch: g.Arch, Machine: g.Machine},
		BootDevices: []libvirtxml.DomainBootDevice{{Dev: "hd"}},
	}
	if g.EFI {
		os.Firmware = "efi"
		os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{{Enabled: "no", Name: "secure-boot"}}}
	}
	return os
}

func cpuMode(g Guest) string {
	if g.VirtType == virtKVM {
		return "host-passthrough"
	}
	return "maximum"
}

func devices(s domainSpec) *libvirtxml.DomainDeviceList {
	port := uint(0)
	list := &libvirtxml.DomainDeviceList{
		Disks: []libvirtxml.DomainDisk{disk("vda", s.Overlay, "qcow2"), readOnly(disk("vdb", s.Seed, "raw"))},
		Controllers: []libvirtxml.DomainController{
			{Type: "usb", Model: "none"},
		},
		Interfaces: []libvirtxml.DomainInterface{{
			MAC: &libvirtxml.DomainInterfaceMAC{Address: s.MAC}, Source: nicSource(s),
			Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		}},
		Serials: []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}, Target: &libvirtxml.DomainSerialTarget{Port: &port},
		}},
		Consoles: []libvirtxml.DomainConsole{{
			Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}, Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &port},
		}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
	}
	if s.Agent != "" {
		agent := readOnly(disk("vdc", s.Agent, "raw"))
		agent.Shareable = &libvirtxml.DomainDiskShareable{}
		list.Disks = append(list.Disks, agent)
	}
	return list
}

func disk(dev, path, format string) libvirtxml.DomainDisk {
	d := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: format},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		Target: &libvirtxml.DomainDiskTarget{Dev: dev, Bus: "virtio"},
	}
	if format == "qcow2" {
		d.Driver.Discard = "unmap"
	}
	return d
}

func readOnly(d libvirtxml.DomainDisk) libvirtxml.DomainDisk {
	d.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	return d
}

func nicSource(s domainSpec) *libvirtxml.DomainInterfaceSource {
	if s.Network != "" {
		return &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: s.Network}}
	}
	return &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: s.Bridge}}
}

// volumeSpec is what a volume is made from.
type volumeSpec struct {
	Name, Format string
	// Capacity in bytes.
	Capacity int64
	// Mode of the file, in octal.
	Mode string
	// BackingPath and BackingFormat, both or neither: a backing file is never probed.
	BackingPath, BackingFormat string
}

func volumeXML(s volumeSpec) (string, error) {
	v := &libvirtxml.StorageVolume{
		Name:       s.Name,
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(s.Capacity)},
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: 0},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: s.Format},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: s.Mode},
		},
	}
	if s.BackingPath != "" {
		v.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: s.BackingPath, Format: &libvirtxml.StorageVolumeTargetFormat{Type: s.BackingFormat},
		}
	}
	return v.Marshal()
}
