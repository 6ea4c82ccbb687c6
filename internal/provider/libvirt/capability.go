// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

const (
	archX86 = "x86_64"
	archARM = "aarch64"
	virtKVM = "kvm"
	virtTCG = "qemu"
)

// machineFor is the machine type of an architecture; empty when there is none.
func machineFor(arch string) string { return map[string]string{archX86: "q35", archARM: "virt"}[arch] }

// need is what an image asks of a host.
type need struct {
	Arch string
	EFI  bool
	// Emulation is allowed where KVM is missing.
	Emulation bool
}

// offer is what a host says of itself: domain capabilities for kvm and qemu, nil where the daemon says that it has none.
type offer struct {
	Arch     string
	KVM, TCG *libvirtxml.DomainCaps
}

// match decides how a guest is run on a host, or names all that the host lacks.
func match(n need, o offer) (Guest, []string) {
	g := Guest{VirtType: virtKVM, Arch: n.Arch, Machine: machineFor(n.Arch), EFI: n.EFI || n.Arch == archARM}
	var missing []string
	caps := o.KVM
	switch {
	case g.Machine == "":
		return g, []string{fmt.Sprintf("guests of architecture %q are not supported (supported: %s, %s)", n.Arch, archX86, archARM)}
	case n.Arch != o.Arch && !n.Emulation:
		return g, []string{fmt.Sprintf("architecture %s (the host is %s)", n.Arch, o.Arch)}
	case caps == nil && o.TCG == nil:
		return g, []string{fmt.Sprintf("a QEMU for machine %s of architecture %s", g.Machine, n.Arch)}
	case caps == nil && !n.Emulation:
		return g, []string{"KVM (load the module kvm_intel or kvm_amd and give QEMU /dev/kvm; or set allowEmulation in the entry, which is slow)"}
	case caps == nil:
		g.VirtType, caps = virtTCG, o.TCG
	}
	if g.EFI && !hasEnum(caps.OS, "firmware", "efi") {
		missing = append(missing, "EFI firmware (install ovmf or edk2)")
	}
	if caps.Devices != nil && !deviceHas(caps.Devices.Disk, "bus", "virtio") {
		missing = append(missing, "virtio disks")
	}
	return g, missing
}

func hasEnum(os *libvirtxml.DomainCapsOS, name, value string) bool {
	return os != nil && enumHas(os.Enums, name, value)
}

// deviceHas is true where the daemon says nothing of the device: older ones list less.
func deviceHas(d *libvirtxml.DomainCapsDevice, name, value string) bool {
	return d == nil || enumHas(d.Enums, name, value)
}

func enumHas(enums []libvirtxml.DomainCapsEnum, name, value string) bool {
	return slices.ContainsFunc(enums, func(e libvirtxml.DomainCapsEnum) bool {
		return e.Name == name && slices.Contains(e.Values, value)
	})
}

// poolTypes are pools of files.
var poolTypes = []string{"dir", "fs", "netfs"}

// poolMissing says what keeps a pool from holding our volumes.
func poolMissing(name string, p PoolInfo) []string {
	var missing []string
	if !slices.Contains(poolTypes, p.Type) {
		missing = append(missing, fmt.Sprintf("a pool of files: pool %s is of type %s (supported: %s)", name, p.Type, strings.Join(poolTypes, ", ")))
	}
	if !p.Active {
		missing = append(missing, fmt.Sprintf("an active pool: pool %s is not started (virsh pool-start %s)", name, name))
	}
	return missing
}
