// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Host describes the daemon and its machine.
func (b *backend) Host(ctx context.Context) (libvirt.HostInfo, error) {
	type answers struct {
		info libvirt.HostInfo
		caps string
	}
	got, err := call(ctx, b, func(c *golibvirt.Libvirt) (answers, error) {
		var a answers
		var err error
		if a.info.Hostname, err = c.ConnectGetHostname(); err != nil {
			return a, err
		}
		if a.info.LibvirtVersion, err = c.ConnectGetLibVersion(); err != nil {
			return a, err
		}
		if a.info.FreeMemoryMiB, err = freeMemory(c); err != nil {
			return a, err
		}
		a.caps, err = c.ConnectGetCapabilities()
		return a, err
	})
	if err != nil {
		return libvirt.HostInfo{}, err
	}
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(got.caps); err != nil {
		return libvirt.HostInfo{}, fmt.Errorf("unreadable host capabilities: %w", err)
	}
	if l, err := b.linker.Get(ctx); err == nil {
		got.info.Via = l.Via()
	}
	got.info.UUID = caps.Host.UUID
	if caps.Host.CPU != nil {
		got.info.Arch = caps.Host.CPU.Arch
	}
	if caps.Host.NUMA != nil && caps.Host.NUMA.Cells != nil {
		for _, cell := range caps.Host.NUMA.Cells.Cells {
			if cell.CPUS != nil {
				got.info.CPUs += int(cell.CPUS.Num)
			}
		}
	}
	return got.info, nil
}

// freeMemory is what new guests could use, caches included, in MiB.
func freeMemory(c *golibvirt.Libvirt) (int64, error) {
	const allCells = -1
	_, count, err := c.NodeGetMemoryStats(0, allCells, 0)
	if err != nil {
		return 0, err
	}
	stats, _, err := c.NodeGetMemoryStats(count, allCells, 0)
	if err != nil {
		return 0, err
	}
	var kib uint64
	for _, s := range stats {
		switch s.Field {
		case "free", "buffers", "cached":
			kib += s.Value
		}
	}
	return int64(kib >> 10), nil
}

// DomainCapabilities is the domain capabilities XML.
func (b *backend) DomainCapabilities(ctx context.Context, virtType, arch, machine string) (string, error) {
	return call(ctx, b, func(c *golibvirt.Libvirt) (string, error) {
		return c.ConnectGetDomainCapabilities(nil, optional(arch), optional(machine), optional(virtType), 0)
	})
}

func optional(s string) golibvirt.OptString {
	if s == "" {
		return nil
	}
	return golibvirt.OptString{s}
}

// CheckNetwork says whether a libvirt network is active.
func (b *backend) CheckNetwork(ctx context.Context, name string) error {
	active, err := call(ctx, b, func(c *golibvirt.Libvirt) (bool, error) {
		network, err := c.NetworkLookupByName(name)
		if err != nil {
			return false, err
		}
		active, err := c.NetworkIsActive(network)
		return active != 0, err
	})
	if err == nil && !active {
		err = &libvirt.DaemonError{Code: libvirt.CodeOperationInvalid, Message: fmt.Sprintf("network %s is not active", name)}
	}
	return err
}

// CheckBridge says whether the host has a bridge; nil from a daemon without the interface driver, which cannot say.
func (b *backend) CheckBridge(ctx context.Context, name string) error {
	err := do(ctx, b, func(c *golibvirt.Libvirt) error {
		_, err := c.InterfaceLookupByName(name)
		return err
	})
	if libvirt.IsCode(err, libvirt.CodeNoSupport) {
		return nil
	}
	return err
}
