// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	cluster  = "0123456789ab"
	hostName = "kvm-1"
)

// qcow2 is an empty image with a virtual disk of that many bytes.
func qcow2(virtual uint64) []byte {
	b := make([]byte, 64<<10)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint32(b[20:], 16)
	binary.BigEndian.PutUint64(b[24:], virtual)
	binary.BigEndian.PutUint32(b[100:], 104)
	return b
}

func imageFile(t *testing.T, content []byte) (url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

func options(t *testing.T, d *libvirttest.Daemon) libvirt.Options {
	t.Helper()
	reserve := int64(2)
	return libvirt.Options{
		Cluster: cluster,
		Entry: config.Entry{
			Name: "kvm2-home", Type: "kvm2", DefaultImage: "debian",
			Hosts:         []config.Host{{Name: hostName, Address: "198.51.100.7", Pool: "default", Bridge: "br0"}},
			Images:        map[string]config.Image{"debian": {URL: imageFile(t, qcow2(1<<30)), Arch: "x86_64", Firmware: "bios"}},
			MaxImageBytes: 1 << 30, PoolReserveGiB: &reserve,
		},
		Reflectors: []string{"192.0.2.1:80"},
		Backend:    func(config.Host) libvirt.Backend { return d.Backend() },
		Agent:      libvirttest.Agent,
	}
}

func TestProviderContract(t *testing.T) {
	providertest.Run(t, libvirttest.Harness(func(t *testing.T) libvirt.Options { return options(t, libvirttest.New(libvirttest.Config{})) }))
}

// rig is a provider over a daemon in memory.
type rig struct {
	*libvirt.Provider
	daemon *libvirttest.Daemon
	names  libvirt.Names
	uid    string
}

func newRig(t *testing.T, cfg libvirttest.Config, change ...func(*libvirt.Options)) *rig {
	t.Helper()
	d := libvirttest.New(cfg)
	o := options(t, d)
	for _, c := range change {
		c(&o)
	}
	return rigOver(t, d, o)
}

func rigOver(t *testing.T, d *libvirttest.Daemon, o libvirt.Options) *rig {
	t.Helper()
	p, err := libvirt.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	names, err := libvirt.NewNames(o.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{p, d, names, uuid.NewString()}
}

func (r *rig) ref() provider.InstanceRef { return provider.InstanceRef{Host: hostName, UID: r.uid} }

func (r *rig) spec() provider.InstanceSpec { return libvirttest.Spec(hostName, r.uid, "") }

func (r *rig) domain() string { return r.names.Domain(r.uid) }

// settle creates until nothing is in progress any more.
func (r *rig) settle(ctx context.Context, spec provider.InstanceSpec) (provider.Instance, error) {
	changed := make(chan struct{}, 1)
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Watch(watching, func(string) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-done }()
	poll := time.NewTicker(10 * time.Millisecond) // the watch may begin after the change
	defer poll.Stop()
	for {
		i, err := r.Create(ctx, spec)
		if !provider.IsInProgress(err) {
			return i, err
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-ctx.Done():
			return i, errors.Join(ctx.Err(), err)
		}
	}
}

func (r *rig) mustMake(t *testing.T) provider.Instance {
	t.Helper()
	i, err := r.settle(t.Context(), r.spec())
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return i
}
