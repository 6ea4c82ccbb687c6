// SPDX-License-Identifier: Apache-2.0

// Package libvirttest is a libvirt daemon in memory, for tests, and the contract suite that holds it to the real one.
package libvirttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// ErrClosed is what a Backend answers after its Close.
var ErrClosed = errors.New("the connection to libvirt is closed")

// Config is what a daemon and its machine are like. The zero value is a capable x86_64 host with the network "default", the bridge
// "br0" and a pool of 100 GiB.
type Config struct {
	Hostname string
	// UUID of the machine and of its pool; new ones when empty.
	UUID, PoolUUID string
	Arch           string
	// NoKVM and NoEFI take away what hosts usually have.
	NoKVM, NoEFI bool
	// PoolType is dir when empty.
	PoolType string
	// PoolCapacity in bytes.
	PoolCapacity int64
	// FreeMemoryMiB that guests can have.
	FreeMemoryMiB int64
	Networks      []string
	Bridges       []string
}

// Fault is asked about each call: an error makes the call fail. It may block, as a daemon that hangs does, and must then end with ctx.
type Fault func(ctx context.Context, method, object string) error

// Daemon is one libvirt daemon with its machine. Many Backends can be connected to it.
type Daemon struct {
	cfg Config

	mu      sync.Mutex
	pool    pool
	volumes map[string]*volume
	domains map[string]*domain
	before  Fault
	after   Fault
	calls   []string
	runs    int // the last number that a start got
	ears    ears
}

// New starts a daemon.
func New(cfg Config) *Daemon {
	cfg.Hostname = cmp.Or(cfg.Hostname, "fake")
	cfg.UUID, cfg.PoolUUID = cmp.Or(cfg.UUID, uuid.NewString()), cmp.Or(cfg.PoolUUID, uuid.NewString())
	cfg.Arch = cmp.Or(cfg.Arch, "x86_64")
	cfg.PoolType = cmp.Or(cfg.PoolType, "dir")
	cfg.PoolCapacity = cmp.Or(cfg.PoolCapacity, 100<<30)
	cfg.FreeMemoryMiB = cmp.Or(cfg.FreeMemoryMiB, 64<<10)
	if cfg.Networks == nil {
		cfg.Networks = []string{"default"}
	}
	if cfg.Bridges == nil {
		cfg.Bridges = []string{"br0"}
	}
	d := &Daemon{cfg: cfg, volumes: map[string]*volume{}, domains: map[string]*domain{}}
	d.pool.active = true
	d.rescan()
	return d
}

// Backend connects to the daemon.
func (d *Daemon) Backend() *Backend { return &Backend{daemon: d, closed: make(chan struct{})} }

// SetFaults sets who is asked before a call has its effect, and who after it had: then the effect stays, and only the answer is lost.
func (d *Daemon) SetFaults(before, after Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

// Calls are the calls that came so far, as "Method object".
func (d *Daemon) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

var dumpSeed = maphash.MakeSeed()

// Dump is all that the daemon holds, for comparison: one line an object, which begins with its kind and its name.
func (d *Daemon) Dump() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := make([]string, 0, len(d.volumes)+len(d.domains))
	for _, name := range slices.Sorted(maps.Keys(d.volumes)) {
		v := *d.volumes[name]
		sum := maphash.Bytes(dumpSeed, v.content)
		v.content = nil
		lines = append(lines, fmt.Sprintf("volume %s %+v content %x", name, v, sum))
	}
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		dom := d.domains[name]
		lines = append(lines, fmt.Sprintf("domain %s state %d/%d persistent %t %s %s", name, dom.state, dom.reason, dom.persistent, dom.xml(), dom.live))
	}
	return lines
}

// Backend is one connection to a Daemon.
type Backend struct {
	daemon *Daemon
	close  sync.Once
	closed chan struct{}
}

var _ libvirt.Backend = (*Backend)(nil)

// Close ends the connection.
func (b *Backend) Close() { b.close.Do(func() { close(b.closed) }) }

// Dedicated is another connection.
func (b *Backend) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	other := b.daemon.Backend()
	return other, b.call(ctx, "Dedicated", "", func() error { return nil })
}

// call is one request: it ends with its context, fails on a closed connection, and asks the faults.
func (b *Backend) call(ctx context.Context, method, object string, effect func() error) error {
	d := b.daemon
	if err := b.usable(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	before, after := d.before, d.after
	d.calls = append(d.calls, strings.TrimSpace(method+" "+object))
	d.mu.Unlock()
	if before != nil {
		if err := before(ctx, method, object); err != nil {
			return err
		}
	}
	if err := b.usable(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	err := effect()
	d.mu.Unlock()
	if err == nil && after != nil {
		return after(ctx, method, object)
	}
	return err
}

func (b *Backend) usable(ctx context.Context) error {
	select {
	case <-b.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

func fail(code int, format string, args ...any) error {
	return &libvirt.DaemonError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Host describes the machine.
func (b *Backend) Host(ctx context.Context) (info libvirt.HostInfo, err error) {
	d := b.daemon
	err = b.call(ctx, "Host", "", func() error {
		info = libvirt.HostInfo{
			Hostname: d.cfg.Hostname, UUID: d.cfg.UUID, LibvirtVersion: 9_000_000, Arch: d.cfg.Arch,
			FreeMemoryMiB: d.cfg.FreeMemoryMiB, CPUs: 4,
		}
		return nil
	})
	return info, err
}

// DomainCapabilities says what the machine can run.
func (b *Backend) DomainCapabilities(ctx context.Context, virtType, arch, machine string) (text string, err error) {
	d := b.daemon
	err = b.call(ctx, "DomainCapabilities", virtType, func() error {
		switch {
		case virtType != "kvm" && virtType != "qemu", virtType == "kvm" && (d.cfg.NoKVM || arch != d.cfg.Arch):
			return fail(libvirt.CodeInvalidArg, "the accel '%s' is not supported by emulator '/usr/bin/qemu-system-%s' on this host", virtType, arch)
		case arch == "x86_64" && machine != "q35", arch == "aarch64" && machine != "virt":
			return fail(libvirt.CodeInvalidArg, "the machine '%s' is not supported by emulator '/usr/bin/qemu-system-%s'", machine, arch)
		case arch != "x86_64" && arch != "aarch64":
			return fail(libvirt.CodeInvalidArg, "unable to find any emulator to serve '%s' architecture", arch)
		}
		firmware := []string{"efi"}
		if d.cfg.NoEFI {
			firmware = nil
		}
		caps := libvirtxml.DomainCaps{
			Path: "/usr/bin/qemu-system-" + arch, Domain: virtType, Machine: machine, Arch: arch,
			OS: &libvirtxml.DomainCapsOS{Supported: "yes", Enums: []libvirtxml.DomainCapsEnum{{Name: "firmware", Values: firmware}}},
			Devices: &libvirtxml.DomainCapsDevices{
				Disk: &libvirtxml.DomainCapsDevice{Supported: "yes", Enums: []libvirtxml.DomainCapsEnum{{Name: "bus", Values: []string{"scsi", "virtio"}}}},
			},
		}
		var err error
		text, err = caps.Marshal()
		return err
	})
	return text, err
}

// CheckNetwork knows the networks of Config.
func (b *Backend) CheckNetwork(ctx context.Context, name string) error {
	return b.call(ctx, "CheckNetwork", name, func() error {
		if !slices.Contains(b.daemon.cfg.Networks, name) {
			return fail(libvirt.CodeNoNetwork, "Network not found: no network with matching name '%s'", name)
		}
		return nil
	})
}

// CheckBridge knows the bridges of Config.
func (b *Backend) CheckBridge(ctx context.Context, name string) error {
	return b.call(ctx, "CheckBridge", name, func() error {
		if !slices.Contains(b.daemon.cfg.Bridges, name) {
			return fail(libvirt.CodeNoInterface, "couldn't find interface named '%s'", name)
		}
		return nil
	})
}
