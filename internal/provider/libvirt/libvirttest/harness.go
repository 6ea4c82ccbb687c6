// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/providertest"
)

// Harness is providertest's view of a libvirt provider: setup gives options with an entry of one host and a default image; their cluster ID
// is replaced by a fresh one, and an agent is added where there is none. All that is done to instances behind the provider's back goes through the same Backend,
// so the suite runs against any daemon.
func Harness(setup func(t *testing.T) libvirt.Options) providertest.Harness {
	return providertest.Harness{New: func(t *testing.T) providertest.System { return newSystem(t, setup(t)) }}
}

// FreshCluster is a cluster ID that nobody else has.
func FreshCluster() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "test" + hex.EncodeToString(b[:])
}

// Agent is an agent of a few bytes.
func Agent(string) (libvirt.AgentFile, error) {
	content := []byte("#!/bin/sh\nexec sleep infinity\n")
	sum := sha256.Sum256(content)
	return libvirt.AgentFile{Version: "0.0.1", SHA256: hex.EncodeToString(sum[:]), Read: func() ([]byte, error) { return content, nil }}, nil
}

// outsider does things to a host behind the provider's back.
type outsider struct {
	libvirt.Backend
	names libvirt.Names
	entry string
	virt  string
}

func newSystem(t *testing.T, o libvirt.Options) providertest.System {
	t.Helper()
	o.Cluster = FreshCluster()
	if o.Agent == nil {
		o.Agent = Agent
	}
	host := o.Entry.Hosts[0]
	names, err := libvirt.NewNames(o.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	hand := outsider{o.Backend(host), names, o.Entry.Name, "kvm"}
	t.Cleanup(hand.Close)
	t.Cleanup(func() { hand.sweep(t) })
	if o.Entry.AllowEmulation {
		hand.virt = "qemu"
	}
	start := func(t *testing.T) provider.Provider {
		t.Helper()
		p, err := libvirt.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	return providertest.System{
		Provider: start(t), Restart: start, Host: host.Name,
		Spec:   func(uid string) provider.InstanceSpec { return Spec(host.Name, uid, o.Entry.DefaultImage) },
		Decoys: hand.decoys(), Damage: hand.damage(),
	}
}

// Spec of a small instance with our agent.
func Spec(host, uid, image string) provider.InstanceSpec {
	return provider.InstanceSpec{
		InstanceRef: provider.InstanceRef{Host: host, UID: uid}, Namespace: "team-a", Name: "exit-1",
		Shape: provider.Shape{
			Image: provider.Image{Name: image}, VCPUs: 1, MemoryMiB: 128, DiskSizeGiB: 1, Software: provider.SoftwareAgent, Port: 3128,
		},
		Credentials: provider.Credentials{Username: "user", Password: provider.NewSecret("correct-horse-battery")},
		ControlKey:  provider.NewSecret(strings.Repeat("k", 32)),
	}
}

// sweep removes what the cluster left in the pool: bases and agents, which outlive instances.
func (o outsider) sweep(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := o.Volumes(ctx)
	if err != nil {
		t.Errorf("looking for leftovers: %v", err)
	}
	for _, v := range all {
		if !strings.HasPrefix(v, libvirt.Prefix+"-"+o.names.Cluster()+"-") {
			continue
		}
		if _, ours := o.names.InstanceUID(v); ours {
			t.Errorf("volume %s of an instance is left", v)
		}
		if err := o.DeleteVolume(ctx, v); err != nil {
			t.Errorf("volume %s is left: %v", v, err)
		}
	}
}

func (o outsider) decoys() []providertest.Decoy {
	mark := func(change func(*libvirt.Mark)) func(uid string) (string, string, error) {
		return func(uid string) (string, string, error) {
			m := libvirt.Mark{Cluster: o.names.Cluster(), Entry: o.entry, UID: uid, Created: time.Now()}
			change(&m)
			element, err := m.Element()
			return o.names.DomainUUID(uid), element, err
		}
	}
	kinds := []struct {
		name string
		is   func(uid string) (id, metadata string, err error)
	}{
		{"a domain without a mark", func(string) (string, string, error) { return uuid.NewString(), "", nil }},
		{"a domain without a mark, of our UUID", func(uid string) (string, string, error) { return o.names.DomainUUID(uid), "", nil }},
		{"a mark that cannot be read", func(uid string) (string, string, error) {
			return o.names.DomainUUID(uid), `<instance xmlns="` + libvirt.MarkNamespace + `" version="1" uid="x"/>`, nil
		}},
		{"the mark of another cluster", mark(func(m *libvirt.Mark) { m.Cluster = "somebodyelse" })},
		{"the mark of another entry", mark(func(m *libvirt.Mark) { m.Entry = "another" })},
		{"the mark of another Proxy", mark(func(m *libvirt.Mark) { m.UID = uuid.NewString() })},
	}
	all := make([]providertest.Decoy, 0, len(kinds))
	for _, d := range kinds {
		all = append(all, providertest.Decoy{Name: d.name, Plant: func(t *testing.T, uid string) func() string {
			t.Helper()
			id, metadata, err := d.is(uid)
			if err != nil {
				t.Fatal(err)
			}
			return o.plant(t, uid, id, metadata)
		}})
	}
	return all
}

// plant makes a domain of the instance's name, and a volume of its overlay's.
func (o outsider) plant(t *testing.T, uid, id, metadata string) (fingerprint func() string) {
	t.Helper()
	name, disk := o.names.Domain(uid), o.names.Overlay(uid)
	volume, err := (&libvirtxml.StorageVolume{
		Name: disk, Capacity: &libvirtxml.StorageVolumeSize{Value: 1 << 20},
		Target: &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
	}).Marshal()
	ok(t, "describe the decoy's volume", err)
	domain := libvirtxml.Domain{
		Type: o.virt, Name: name, UUID: id, Memory: &libvirtxml.DomainMemory{Value: 64, Unit: "MiB"}, VCPU: &libvirtxml.DomainVCPU{Value: 1},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}},
	}
	if metadata != "" {
		domain.Metadata = &libvirtxml.DomainMetadata{XML: metadata}
	}
	definition, err := domain.Marshal()
	ok(t, "describe the decoy", err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ok(t, "remove the decoy", o.Undefine(ctx, name))
		ok(t, "remove the decoy's volume", o.DeleteVolume(ctx, disk))
	})
	ok(t, "make the decoy's volume", o.CreateVolume(t.Context(), volume))
	ok(t, "make the decoy", o.Define(t.Context(), definition))
	return func() string {
		info, err := o.Domain(t.Context(), name)
		ok(t, "look at the decoy", err)
		text, err := o.DomainXML(t.Context(), name)
		ok(t, "look at the decoy", err)
		onDisk, err := o.Volume(t.Context(), disk)
		ok(t, "look at the decoy's volume", err)
		return fmt.Sprintf("%+v\n%+v\n%s", info, onDisk, text)
	}
}

func (o outsider) damage() []providertest.Damage {
	stop := func(t *testing.T, uid string) {
		t.Helper()
		ok(t, "destroy", o.Destroy(t.Context(), o.names.Domain(uid)))
	}
	undefine := func(t *testing.T, uid string) {
		t.Helper()
		stop(t, uid)
		ok(t, "undefine", o.Undefine(t.Context(), o.names.Domain(uid)))
	}
	remove := func(t *testing.T, name string) { t.Helper(); ok(t, "delete "+name, o.DeleteVolume(t.Context(), name)) }
	return []providertest.Damage{
		{Name: "stopped", Do: stop},
		{Name: "volumes without a domain", Do: undefine},
		{Name: "an overlay without seed and domain", Do: func(t *testing.T, uid string) { undefine(t, uid); remove(t, o.names.Seed(uid)) }},
		{Name: "a domain without its overlay", Do: func(t *testing.T, uid string) { stop(t, uid); remove(t, o.names.Overlay(uid)) }},
		{Name: "a domain without its seed", Do: func(t *testing.T, uid string) { stop(t, uid); remove(t, o.names.Seed(uid)) }},
		{Name: "a domain without volumes", Do: func(t *testing.T, uid string) {
			stop(t, uid)
			remove(t, o.names.Seed(uid))
			remove(t, o.names.Overlay(uid))
		}},
	}
}
