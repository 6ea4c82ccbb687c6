// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

const (
	poolPath = "/var/lib/libvirt/images"
	// keptContent is how much of an upload is kept.
	keptContent = 2 << 20
	// qcow2Overhead is the length of an empty qcow2 file.
	qcow2Overhead = 196_616
)

// pool holds what the daemon believes; the truth is in the files, and found by a rescan.
type pool struct {
	active              bool
	capacity, available int64
	otherFiles          int64
	failRefreshes       int
	busyRefreshes       int
}

// volume is a volume and its file.
type volume struct {
	format        string
	capacity      int64
	length        int64 // of the file
	allocation    int64
	backing       string
	backingFormat string
	mode          string
	content       []byte // the first keptContent bytes
	gone          bool   // the file was removed behind the daemon's back
	unseen        bool   // the file came behind the daemon's back
}

// FillPool has other files take all but free bytes of the pool, behind the daemon's back.
func (d *Daemon) FillPool(free int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pool.otherFiles = d.cfg.PoolCapacity - d.usedByVolumes() - free
}

// FailRefreshes makes the next n refreshes fail, and stop the pool.
func (d *Daemon) FailRefreshes(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pool.failRefreshes = n
}

// BusyRefreshes has the daemon refuse the next n refreshes, for it is making a volume.
func (d *Daemon) BusyRefreshes(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pool.busyRefreshes = n
}

// StopPool stops the pool.
func (d *Daemon) StopPool() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pool.active = false
}

// AddVolume puts a file of somebody else's into the pool.
func (d *Daemon) AddVolume(name, content string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int64(len(content))
	d.volumes[name] = &volume{format: "raw", capacity: n, length: n, allocation: n, content: []byte(content)}
}

// AddOverlay puts a disk of somebody else's into the pool, backed by a file.
func (d *Daemon) AddOverlay(name, backing string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[name] = &volume{format: "qcow2", capacity: 1 << 30, length: qcow2Overhead, allocation: qcow2Overhead, backing: backing}
}

// WriteFile puts a file of so many bytes into the pool's folder behind the daemon's back: it is no volume until the next refresh.
func (d *Daemon) WriteFile(name string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[name] = &volume{format: "raw", capacity: size, length: size, allocation: size, unseen: true}
}

// RemoveFile removes a volume's file behind the daemon's back: the volume is listed until the next refresh.
func (d *Daemon) RemoveFile(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[name].gone = true
}

// Truncate cuts a volume's file behind the daemon's back.
func (d *Daemon) Truncate(name string, length int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[name]
	v.length, v.allocation = length, min(v.allocation, length)
}

// VolumeNames are the volumes that exist.
func (d *Daemon) VolumeNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.volumes))
}

// Content is the beginning of a volume, up to 2 MiB, and the mode of its file.
func (d *Daemon) Content(name string) (content []byte, mode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[name]; v != nil {
		return slices.Clone(v.content), v.mode
	}
	return nil, ""
}

func (d *Daemon) usedByVolumes() (used int64) {
	for _, v := range d.volumes {
		if !v.gone {
			used += v.allocation
		}
	}
	return used
}

func (d *Daemon) free() int64 { return d.cfg.PoolCapacity - d.pool.otherFiles - d.usedByVolumes() }

// rescan is what a refresh does.
func (d *Daemon) rescan() {
	maps.DeleteFunc(d.volumes, func(_ string, v *volume) bool { return v.gone })
	for _, v := range d.volumes {
		v.unseen = false
		v.probe()
	}
	d.pool.capacity, d.pool.available = d.cfg.PoolCapacity, d.free()
}

// probe reads the format from the content, as the daemon does for files that it finds.
func (v *volume) probe() {
	if v.format == "raw" && len(v.content) >= 32 && bytes.HasPrefix(v.content, []byte("QFI\xfb")) {
		v.format = "qcow2"
		v.capacity = int64(min(binary.BigEndian.Uint64(v.content[24:]), math.MaxInt64))
	}
	if v.format == "raw" {
		v.capacity = max(v.capacity, v.length)
	}
}

func (d *Daemon) activePool() error {
	if !d.pool.active {
		return fail(libvirt.CodeOperationInvalid, "storage pool 'default' is not active")
	}
	return nil
}

func (d *Daemon) volume(name string) (*volume, error) {
	if err := d.activePool(); err != nil {
		return nil, err
	}
	v := d.volumes[name]
	if v == nil || v.unseen {
		return nil, fail(libvirt.CodeNoVolume, "Storage volume not found: no storage vol with matching name '%s'", name)
	}
	return v, nil
}

// Pool describes the pool: what the daemon believes, unless refresh is set.
func (b *Backend) Pool(ctx context.Context, refresh bool) (info libvirt.PoolInfo, err error) {
	d := b.daemon
	method := "Pool"
	if refresh {
		method = "RefreshPool"
	}
	err = b.call(ctx, method, "", func() error {
		if refresh {
			if err := d.activePool(); err != nil {
				return err
			}
			if d.pool.busyRefreshes > 0 {
				d.pool.busyRefreshes--
				return fail(libvirt.CodeInternal, "internal error: pool 'default' has asynchronous jobs running.")
			}
			if d.pool.failRefreshes > 0 {
				d.pool.failRefreshes--
				d.pool.active = false
				return fail(libvirt.CodeSystemError, "cannot open directory '%s': Input/output error", poolPath)
			}
			d.rescan()
		}
		info = libvirt.PoolInfo{
			UUID: d.cfg.PoolUUID, Type: d.cfg.PoolType, Path: poolPath, Active: d.pool.active,
			Capacity: d.pool.capacity, Available: d.pool.available,
		}
		return nil
	})
	return info, err
}

// StartPool starts the pool, which rescans it.
func (b *Backend) StartPool(ctx context.Context) error {
	d := b.daemon
	return b.call(ctx, "StartPool", "", func() error {
		if d.pool.active {
			return fail(libvirt.CodeOperationInvalid, "storage pool 'default' is already active")
		}
		d.pool.active = true
		d.rescan()
		return nil
	})
}

// Volumes lists the pool.
func (b *Backend) Volumes(ctx context.Context) (names []string, err error) {
	d := b.daemon
	err = b.call(ctx, "Volumes", "", func() error {
		for _, name := range slices.Sorted(maps.Keys(d.volumes)) {
			if !d.volumes[name].unseen {
				names = append(names, name)
			}
		}
		return d.activePool()
	})
	return names, err
}

// Volume describes one.
func (b *Backend) Volume(ctx context.Context, name string) (info libvirt.VolumeInfo, err error) {
	err = b.call(ctx, "Volume", name, func() error {
		v, err := b.daemon.volume(name)
		if err != nil {
			return err
		}
		if v.gone {
			return fail(libvirt.CodeNoVolume, "Storage volume not found: no storage vol with matching path '%s'", path.Join(poolPath, name))
		}
		info = libvirt.VolumeInfo{
			Name: name, Path: path.Join(poolPath, name), Format: v.format, Capacity: v.capacity, Allocation: v.allocation,
			Physical: v.length, BackingPath: v.backing,
		}
		return nil
	})
	return info, err
}

// CreateVolume makes one.
func (b *Backend) CreateVolume(ctx context.Context, text string) error {
	spec := libvirtxml.StorageVolume{}
	parseErr := spec.Unmarshal(text)
	return b.call(ctx, "CreateVolume", spec.Name, func() error {
		d := b.daemon
		if parseErr != nil {
			return fail(libvirt.CodeXMLDetail, "(storage_volume_definition):1: %v", parseErr)
		}
		if spec.Name == "" || spec.Capacity == nil {
			return fail(libvirt.CodeXMLError, "XML error: missing volume name or capacity element")
		}
		if err := d.activePool(); err != nil {
			return err
		}
		switch there := d.volumes[spec.Name]; {
		case there == nil:
		case there.unseen:
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: volume target path '%s' already exists", path.Join(poolPath, spec.Name))
		default:
			return fail(libvirt.CodeVolumeExists, "storage volume '%s' exists already", spec.Name)
		}
		v, err := d.newVolume(spec)
		if err != nil {
			return err
		}
		d.volumes[spec.Name] = v
		d.pool.available -= v.allocation
		return nil
	})
}

func (d *Daemon) newVolume(spec libvirtxml.StorageVolume) (*volume, error) {
	v := &volume{format: "raw", capacity: int64(spec.Capacity.Value)}
	if t := spec.Target; t != nil && t.Format != nil {
		v.format = t.Format.Type
	}
	if t := spec.Target; t != nil && t.Permissions != nil {
		v.mode = t.Permissions.Mode
	}
	if v.format == "raw" {
		v.length = v.capacity
		return v, nil
	}
	v.length, v.allocation = qcow2Overhead, qcow2Overhead
	if s := spec.BackingStore; s != nil {
		if !d.fileExists(s.Path) {
			return nil, fail(libvirt.CodeSystemError, "inaccessible backing store volume %s: No such file or directory", s.Path)
		}
		v.backing = s.Path
		if s.Format != nil {
			v.backingFormat = s.Format.Type
		}
	}
	if v.allocation > d.free() {
		return nil, fail(libvirt.CodeSystemError, "cannot create path '%s': No space left on device", path.Join(poolPath, spec.Name))
	}
	return v, nil
}

// fileExists says whether there is a file, with all that backs it.
func (d *Daemon) fileExists(file string) bool {
	v := d.volumes[path.Base(file)]
	if path.Dir(file) != poolPath || v == nil || v.gone {
		return false
	}
	return v.backing == "" || d.fileExists(v.backing)
}

// Upload writes a volume; a fault after it finds the data written.
func (b *Backend) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	if length < 1 {
		return fmt.Errorf("an upload of %d bytes", length)
	}
	if err := b.call(ctx, "Upload", name, func() error {
		_, err := b.daemon.volume(name)
		return err
	}); err != nil {
		return err
	}
	chunk, holes := make([]byte, 256<<10), int64(0)
	for written := int64(0); written < length; {
		n, err := io.ReadFull(r, chunk[:min(int64(len(chunk)), length-written)])
		if err != nil {
			return fmt.Errorf("reading the data to upload: %w", err)
		}
		if err := b.usable(ctx); err != nil {
			return err
		}
		if written+int64(n) < length && len(bytes.TrimLeft(chunk[:n], "\x00")) == 0 {
			holes += int64(n)
		}
		if err := b.write(name, chunk[:n], written, holes); err != nil {
			return err
		}
		written += int64(n)
	}
	return b.call(ctx, "UploadDone", name, func() error { return nil })
}

// write puts data at an offset, of which so many bytes are in holes.
func (b *Backend) write(name string, data []byte, at, holes int64) error {
	d := b.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[name]
	if v == nil {
		return nil // deleted meanwhile: the daemon writes on into a file without a name
	}
	end := at + int64(len(data))
	grown := max(end-holes-v.allocation, 0)
	if grown > d.free() {
		return fail(libvirt.CodeSystemError, "cannot write to stream: No space left on device")
	}
	v.allocation += grown
	v.length = max(v.length, end)
	if at < keptContent {
		v.content = append(v.content[:min(at, int64(len(v.content)))], data[:min(int64(len(data)), keptContent-at)]...)
	}
	return nil
}

// DeleteVolume removes one, whoever uses it.
func (b *Backend) DeleteVolume(ctx context.Context, name string) error {
	d := b.daemon
	return b.call(ctx, "DeleteVolume", name, func() error {
		v, err := d.volume(name)
		if err != nil {
			return err
		}
		delete(d.volumes, name)
		d.pool.available += v.allocation
		return nil
	})
}
