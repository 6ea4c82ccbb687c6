// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"bytes"
	"context"
	"fmt"
	"io"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Pool describes the pool; refresh rescans it first.
func (b *backend) Pool(ctx context.Context, refresh bool) (libvirt.PoolInfo, error) {
	xml, err := inPool(ctx, b, func(c *golibvirt.Libvirt, p golibvirt.StoragePool) (string, error) {
		if refresh {
			if err := c.StoragePoolRefresh(p, 0); err != nil {
				return "", err
			}
		}
		return c.StoragePoolGetXMLDesc(p, 0)
	})
	if err != nil {
		return libvirt.PoolInfo{}, err
	}
	var desc libvirtxml.StoragePool
	if err := desc.Unmarshal(xml); err != nil {
		return libvirt.PoolInfo{}, fmt.Errorf("pool %s: unreadable description: %w", b.pool, err)
	}
	info := libvirt.PoolInfo{UUID: desc.UUID, Type: desc.Type, Active: true}
	if desc.Target != nil {
		info.Path = desc.Target.Path
	}
	if refresh && desc.Capacity != nil && desc.Available != nil { // only an active pool can be refreshed; the daemon says bytes
		info.Capacity, info.Available = int64(desc.Capacity.Value), int64(desc.Available.Value)
		return info, nil
	}
	return inPool(ctx, b, func(c *golibvirt.Libvirt, p golibvirt.StoragePool) (libvirt.PoolInfo, error) {
		state, capacity, _, available, err := c.StoragePoolGetInfo(p)
		info := info
		info.Active = golibvirt.StoragePoolState(state) == golibvirt.StoragePoolRunning
		info.Capacity, info.Available = int64(capacity), int64(available)
		return info, err
	})
}

// StartPool starts the inactive pool.
func (b *backend) StartPool(ctx context.Context) error {
	_, err := inPool(ctx, b, func(c *golibvirt.Libvirt, p golibvirt.StoragePool) (struct{}, error) {
		return struct{}{}, c.StoragePoolCreate(p, 0)
	})
	return err
}

// Volumes lists the pool's volumes by name.
func (b *backend) Volumes(ctx context.Context) ([]string, error) {
	return inPool(ctx, b, func(c *golibvirt.Libvirt, p golibvirt.StoragePool) ([]string, error) {
		volumes, _, err := c.StoragePoolListAllVolumes(p, 1, 0)
		names := make([]string, len(volumes))
		for i, v := range volumes {
			names[i] = v.Name
		}
		return names, err
	})
}

// volume is a handle of a volume; the daemon looks it up by pool and name.
func (b *backend) volume(name string) golibvirt.StorageVol {
	return golibvirt.StorageVol{Pool: b.pool, Name: name, Key: name}
}

// Volume describes one volume.
func (b *backend) Volume(ctx context.Context, name string) (libvirt.VolumeInfo, error) {
	xml, err := call(ctx, b, func(c *golibvirt.Libvirt) (string, error) {
		return c.StorageVolGetXMLDesc(b.volume(name), 0)
	})
	if err != nil {
		return libvirt.VolumeInfo{}, err
	}
	var desc libvirtxml.StorageVolume
	if err := desc.Unmarshal(xml); err != nil {
		return libvirt.VolumeInfo{}, fmt.Errorf("volume %s: unreadable description: %w", name, err)
	}
	return volumeInfo(name, desc)
}

func volumeInfo(name string, desc libvirtxml.StorageVolume) (libvirt.VolumeInfo, error) {
	info := libvirt.VolumeInfo{Name: name, Path: desc.Key}
	for _, size := range []struct {
		of  *libvirtxml.StorageVolumeSize
		put *int64
	}{{desc.Capacity, &info.Capacity}, {desc.Allocation, &info.Allocation}, {desc.Physical, &info.Physical}} {
		if size.of == nil {
			continue
		}
		if unit := size.of.Unit; unit != "" && unit != "bytes" {
			return info, fmt.Errorf("volume %s: size in %q where the daemon always says bytes", name, unit)
		}
		*size.put = int64(size.of.Value)
	}
	if desc.Target != nil {
		if desc.Target.Path != "" {
			info.Path = desc.Target.Path
		}
		if desc.Target.Format != nil {
			info.Format = desc.Target.Format.Type
		}
	}
	if desc.BackingStore != nil {
		info.BackingPath = desc.BackingStore.Path
	}
	return info, nil
}

// CreateVolume makes a volume.
func (b *backend) CreateVolume(ctx context.Context, xml string) error {
	_, err := inPool(ctx, b, func(c *golibvirt.Libvirt, p golibvirt.StoragePool) (struct{}, error) {
		_, err := c.StorageVolCreateXML(p, xml, 0)
		return struct{}{}, err
	})
	return err
}

// sparseUploads is the first version of libvirt that takes holes.
const sparseUploads = 3_004_000

// Upload writes to a volume over a link of its own, or over this very one where it is dedicated already. What is in memory and small goes over any.
func (b *backend) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	if length < 1 {
		return fmt.Errorf("volume %s: an upload of %d bytes", name, length)
	}
	if content, ok := r.(*bytes.Reader); ok && length == int64(content.Len()) && length <= link.MaxPut {
		return b.put(ctx, name, content)
	}
	known, err := b.known(ctx)
	if err != nil {
		return err
	}
	own, dedicated := b.linker.(single)
	if !dedicated {
		l, err := b.linker.Dedicated(ctx)
		if err != nil {
			return translate(err)
		}
		own = single{b.linker, l}
		defer own.Close()
	}
	return translate(own.link.Upload(ctx, b.volume(name), r, uint64(length), known.version >= sparseUploads))
}

func (b *backend) put(ctx context.Context, name string, r *bytes.Reader) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l, err := b.linker.Get(ctx)
	if err != nil {
		return translate(err)
	}
	return translate(l.Put(ctx, b.volume(name), content))
}

// DeleteVolume removes a volume.
func (b *backend) DeleteVolume(ctx context.Context, name string) error {
	return do(ctx, b, func(c *golibvirt.Libvirt) error { return c.StorageVolDelete(b.volume(name), 0) })
}
