// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/simulated"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/process"
)

// world is where instances are made, with something in it that is not ours.
type world interface {
	name() string
	// serve are the standalone's arguments besides its data directory.
	serve() []string
	program() string
	spec() v1alpha1.ProxySpec
	// done says whether a Proxy is as far as it gets in this world.
	done(*v1alpha1.Proxy) bool
	// held are the names of all that a cluster's Proxies have there, and expected those that one Proxy has.
	held(ctx context.Context, cluster string) ([]string, error)
	expected(cluster, uid string) []string
	// foreign is a fingerprint of what is not ours.
	foreign(context.Context) (string, error)
	close(context.Context) error
}

// hostNumber is this drill's own host.
const hostNumber = 8

// kvm is a real libvirt host with guests that do not boot: what counts is what the host holds.
type kvm struct {
	lab   *lab.Lab
	decoy lab.Foreign
}

func openKVM(ctx context.Context, dir string) (world, error) {
	l, err := lab.StartHosts(ctx, dir, hostNumber)
	if err != nil {
		return nil, err
	}
	w := &kvm{lab: l}
	if err := lab.Wipe(ctx, l.Hosts[0]); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	w.decoy, err = lab.Plant(ctx, l.Hosts[0], []string{"somebodys-vm", "egress-anothercluster-vm-00000000000000000000000000000000"},
		[]string{"somebodys-disk.raw", "egress-anothercluster-vm-00000000000000000000000000000000.qcow2"})
	if err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

func (w *kvm) name() string    { return "kvm2" }
func (w *kvm) program() string { return w.lab.Standalone }
func (w *kvm) serve() []string {
	return []string{"--providers", w.lab.Providers, "--reflector", "none"}
}

func (w *kvm) spec() v1alpha1.ProxySpec {
	return v1alpha1.ProxySpec{Provider: lab.Entry, Placement: &v1alpha1.Placement{Image: &v1alpha1.Image{Name: "empty"}}}
}

func (w *kvm) done(p *v1alpha1.Proxy) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
	return c != nil && c.Reason == v1alpha1.ReasonBooting
}

func (w *kvm) held(ctx context.Context, cluster string) ([]string, error) {
	held, err := lab.Hold(ctx, w.lab.Hosts[0])
	var names []string
	for _, name := range append(held.Instances(), held.Loose()...) {
		if strings.HasPrefix(name, libvirt.Prefix+"-"+cluster+"-") {
			names = append(names, name)
		}
	}
	return names, err
}

func (w *kvm) expected(cluster, uid string) []string {
	names, err := libvirt.NewNames(cluster)
	if err != nil {
		return []string{err.Error()}
	}
	return []string{names.Domain(uid), names.Overlay(uid), names.Seed(uid)}
}

func (w *kvm) foreign(ctx context.Context) (string, error) { return w.decoy.Fingerprint(ctx) }

func (w *kvm) close(ctx context.Context) error {
	return errors.Join(w.decoy.Remove(ctx), lab.Wipe(ctx, w.lab.Hosts[0]), w.lab.Close(), w.lab.Hosts[0].Down(ctx, true))
}

// sim is two simulated hosts in a process of their own.
type sim struct {
	binary, socket, providers, reflector string
	simulator                            *process.Process
	client                               *simulated.Client
	other                                simulated.Owner
}

const simulatedEntry = "simulated"

func openSimulated(ctx context.Context, dir string) (_ world, err error) {
	w := &sim{socket: filepath.Join(dir, "sim.sock"), providers: filepath.Join(dir, "simulated.yaml"), other: simulated.Owner{Cluster: "anothercluster", Entry: "theirs"}}
	if w.binary, err = lab.BuildStandalone(ctx); err != nil {
		return nil, err
	}
	if w.reflector, err = freeAddress(); err != nil {
		return nil, err
	}
	file := fmt.Sprintf(`version: 1
reflectors: [{url: "http://%s/"}]
probe: {interval: 5s, timeout: 2s}
entries:
- name: %s
  type: simulated
  socket: %s
  hosts:
  - {name: a, addresses: 127.61.1.0/24, bootTime: 300ms}
  - {name: b, addresses: 127.61.2.0/24, bootTime: 300ms}
`, w.reflector, simulatedEntry, w.socket)
	if err := os.WriteFile(w.providers, []byte(file), 0o600); err != nil {
		return nil, err
	}
	if w.simulator, err = process.Start(exec.Command(w.binary, "simulator", "--socket", w.socket), nil); err != nil {
		return nil, err
	}
	w.client = simulated.NewClient(w.socket)
	if err := w.plant(ctx); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

// plant makes an instance of another cluster on one of the hosts.
func (w *sim) plant(ctx context.Context) error {
	return lab.Until(ctx, 30*time.Second, "the simulator to have somebody else's instance", func(ctx context.Context) (bool, error) {
		description := simulated.Description{Hosts: []simulated.HostDescription{
			{Name: "a", Addresses: netip.MustParsePrefix("127.61.1.0/24"), Capacity: 100, BootTime: time.Millisecond},
		}}
		if err := w.client.Attach(ctx, w.other, description); err != nil {
			return false, nil //nolint:nilerr // the simulator does not listen yet
		}
		made, err := w.client.Create(ctx, w.other, provider.InstanceSpec{
			InstanceRef: provider.InstanceRef{Host: "a", UID: uuid.Nil.String()}, Namespace: "theirs", Name: "theirs",
			Shape:       provider.Shape{VCPUs: 1, MemoryMiB: 64, DiskSizeGiB: 1, Software: provider.SoftwareAgent, Port: 3128},
			Credentials: provider.Credentials{Username: "u", Password: provider.NewSecret("somebody else's")},
			ControlKey:  provider.NewSecret(strings.Repeat("k", 32)),
		})
		return len(made.Addresses) > 0, err
	})
}

func (w *sim) name() string    { return "simulated" }
func (w *sim) program() string { return w.binary }
func (w *sim) serve() []string {
	return []string{"--providers", w.providers, "--reflector", w.reflector}
}

func (w *sim) spec() v1alpha1.ProxySpec { return v1alpha1.ProxySpec{Provider: simulatedEntry} }

func (w *sim) done(p *v1alpha1.Proxy) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
}

func (w *sim) held(ctx context.Context, cluster string) ([]string, error) {
	records, err := w.client.Instances(ctx)
	var names []string
	for _, r := range records {
		if r.Cluster == cluster {
			names = append(names, r.UID)
		}
	}
	return names, err
}

func (w *sim) expected(_, uid string) []string { return []string{uid} }

func (w *sim) foreign(ctx context.Context) (string, error) {
	records, err := w.client.Instances(ctx)
	var b strings.Builder
	for _, r := range records {
		if r.Owner == w.other {
			fmt.Fprintf(&b, "%s %s %+v\n", r.Host, r.InstanceName, r.Instance)
		}
	}
	return b.String(), err
}

func (w *sim) close(context.Context) error {
	w.client.Close()
	return w.simulator.Stop(30 * time.Second)
}

// freeAddress is one on which nothing listens.
func freeAddress() (string, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
