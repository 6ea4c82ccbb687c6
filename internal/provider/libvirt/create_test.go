// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// want checks an error's kind and what it says.
func want(t *testing.T, err error, kind provider.Kind, says ...string) {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("got %v (%v), want %v", err, provider.KindOf(err), kind)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// ours are the names of an instance's own things.
func (r *rig) ours() (all []string) {
	for _, name := range slices.Concat(r.daemon.DomainNames(), r.daemon.VolumeNames()) {
		if _, ok := r.names.InstanceUID(name); ok {
			all = append(all, name)
		}
	}
	return all
}

func TestWhatIsMade(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	text, err := r.daemon.Backend().DomainXML(t.Context(), r.domain())
	if err != nil {
		t.Fatal(err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if d.Type != "kvm" || d.UUID != r.names.DomainUUID(r.uid) || d.Title != "team-a/exit-1" || d.OS.Type.Machine != "q35" || d.CPU.Mode != "host-passthrough" || d.Clock.Offset != "utc" {
		t.Errorf("domain:\n%s", text)
	}
	if len(d.Devices.Disks) != 3 || len(d.Devices.Serials) != 1 || len(d.Devices.RNGs) != 1 || len(d.Devices.Graphics) != 0 {
		t.Fatalf("devices:\n%s", text)
	}
	for i, want := range []struct {
		dev, format      string
		readOnly, shared bool
	}{{"vda", "qcow2", false, false}, {"vdb", "raw", true, false}, {"vdc", "raw", true, true}} {
		disk := d.Devices.Disks[i]
		if disk.Target.Dev != want.dev || disk.Target.Bus != "virtio" || disk.Driver.Type != want.format ||
			(disk.ReadOnly != nil) != want.readOnly || (disk.Shareable != nil) != want.shared || disk.Source.File == nil {
			t.Errorf("disk %d: %+v", i, disk)
		}
	}
	nic := d.Devices.Interfaces[0]
	if nic.MAC.Address != r.names.MAC(r.uid) || nic.Source.Bridge.Bridge != "br0" || nic.Model.Type != "virtio" {
		t.Errorf("NIC: %+v", nic)
	}
	if ch := d.Devices.Channels[0]; ch.Target.VirtIO.Name != "org.qemu.guest_agent.0" {
		t.Errorf("channel: %+v", ch)
	}
	overlay, err := r.daemon.Backend().Volume(t.Context(), r.names.Overlay(r.uid))
	if err != nil || overlay.Capacity != 1<<30 || !strings.Contains(overlay.BackingPath, "-base-kvm2-home-") {
		t.Errorf("overlay: %+v, %v", overlay, err)
	}
	t.Run("X9: the seed is the guest's own, secret, and has its UID as instance-id", func(t *testing.T) {
		seed, mode := r.daemon.Content(r.names.Seed(r.uid))
		if mode != "0600" || len(seed) >= 1<<20 || !bytes.Contains(seed, []byte("instance-id: "+r.uid)) || !bytes.Contains(seed, []byte("cidata")) {
			t.Errorf("mode %s, %d bytes", mode, len(seed))
		}
	})
}

func TestAgentVolume(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	i := r.mustMake(t)
	if i.AgentVersion != "0.0.1" {
		t.Errorf("agent version %q", i.AgentVersion)
	}
	agents := func() (all []string) {
		for _, v := range r.daemon.VolumeNames() {
			if strings.Contains(v, "-agent-kvm2-home-x86_64-") && strings.HasSuffix(v, ".img") {
				all = append(all, v)
			}
		}
		return all
	}
	first := agents()
	if len(first) != 1 {
		t.Fatalf("agent volumes: %q", first)
	}
	if content, mode := r.daemon.Content(first[0]); mode != "0644" || !bytes.Contains(content, []byte("EGRESS_AGENT")) {
		t.Errorf("mode %s, %d bytes", mode, len(content))
	}
	r.uid = uuid.NewString()
	r.mustMake(t)
	if again := agents(); !slices.Equal(again, first) {
		t.Errorf("a second instance made another agent volume: %q", again)
	}
	without := r.spec()
	without.UID, without.Software = uuid.NewString(), provider.SoftwareNone
	if i, err := r.settle(t.Context(), without); err != nil || i.AgentVersion != "" {
		t.Errorf("without the agent: %+v, %v", i, err)
	}
}

func TestLocalTrouble(t *testing.T) {
	t.Run("M8: trouble with the operator's own files is Transient", func(t *testing.T) {
		fail := true
		r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
			o.Agent = func(arch string) (libvirt.AgentFile, error) {
				if fail {
					return libvirt.AgentFile{}, errors.New("read /usr/share/egress-agent: input/output error")
				}
				return libvirttest.Agent(arch)
			}
		})
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Transient, "input/output error")
		fail = false
		r.mustMake(t)
	})
	t.Run("M8: a wrong spec is Permanent, and its secrets stay secret", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		spec := r.spec()
		spec.Software, spec.UserData = provider.SoftwareCloudInit, provider.NewSecret("hunter2, which is no user data")
		_, err := r.settle(t.Context(), spec)
		want(t, err, provider.Permanent, "user data")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	})
}

func TestOverlayLeftOver(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	for _, size := range []int{1, 2} { // as it is, and remade
		b := r.daemon.Backend()
		if err := errors.Join(b.Destroy(t.Context(), r.domain()), b.Undefine(t.Context(), r.domain())); err != nil {
			t.Fatal(err)
		}
		spec := r.spec()
		spec.DiskSizeGiB = size
		if _, err := r.settle(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if info, err := b.Volume(t.Context(), r.names.Overlay(r.uid)); err != nil || info.Capacity != int64(size)<<30 {
			t.Errorf("overlay %+v, %v", info, err)
		}
	}
}

// The row M3 is proven on the real host; this is its decision.
func TestARefusedDefineLeavesNothing(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.daemon.SetFaults(func(_ context.Context, method, _ string) error {
		if method == "Define" {
			return &libvirt.DaemonError{Code: libvirt.CodeConfigUnsupported, Message: "unsupported configuration: no"}
		}
		return nil
	}, nil)
	_, err := r.settle(t.Context(), r.spec())
	want(t, err, provider.Permanent, "unsupported configuration")
	if left := r.ours(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestAnUncertainDefineKeepsWhatItMade(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.daemon.SetFaults(nil, func(_ context.Context, method, _ string) error {
		if method == "Define" {
			return &libvirt.HostError{Reason: provider.HostUnreachable, Message: "the link broke"}
		}
		return nil
	})
	_, err := r.settle(t.Context(), r.spec())
	want(t, err, provider.Transient, "the link broke")
	r.daemon.SetFaults(nil, nil)
	r.mustMake(t)
	if got := r.ours(); len(got) != 3 {
		t.Errorf("there are %q", got)
	}
}

func TestAUUIDThatIsTaken(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.daemon.AddDomain("somebody-elses", r.names.DomainUUID(r.uid), true)
	_, err := r.settle(t.Context(), r.spec())
	want(t, err, provider.Conflict, "somebody-elses")
	if left := r.ours(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	want(t, r.Delete(t.Context(), r.ref()), provider.NotFound)
	if got := r.daemon.DomainNames(); !slices.Equal(got, []string{"somebody-elses"}) {
		t.Errorf("domains %q", got)
	}
}

// The row X19 needs the collector as well; this is Create's half of it.
func TestABaseThatIsUnpublishedMeanwhile(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	var once bool
	r.daemon.SetFaults(nil, func(ctx context.Context, method, object string) error {
		if method == "CreateVolume" && object == r.names.Overlay(r.uid) && !once {
			once = true
			for _, v := range r.daemon.VolumeNames() {
				if strings.Contains(v, "-base-") && strings.Contains(v, ".img.v1.") {
					return r.daemon.Backend().DeleteVolume(ctx, v)
				}
			}
		}
		return nil
	})
	_, err := r.settle(t.Context(), r.spec())
	want(t, err, provider.Transient, "was taken out of use")
	if left := r.ours(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	r.mustMake(t)
}

// The row H4d is proven on the real host; this is its decision.
func TestAHollowBaseIsFetchedAgain(t *testing.T) {
	for name, harm := range map[string]func(*libvirttest.Daemon, string){
		"cut off":      func(d *libvirttest.Daemon, v string) { d.Truncate(v, 100) },
		"file removed": func(d *libvirttest.Daemon, v string) { d.RemoveFile(v) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.mustMake(t)
			var base string
			for _, v := range r.daemon.VolumeNames() {
				if strings.Contains(v, "-base-") && strings.HasSuffix(v, ".img") {
					base = v
				}
			}
			harm(r.daemon, base)
			r.uid = uuid.NewString()
			r.mustMake(t)
			info, err := r.daemon.Backend().Volume(t.Context(), r.names.Overlay(r.uid))
			if err != nil || strings.HasSuffix(info.BackingPath, base) {
				t.Errorf("overlay %+v, %v", info, err)
			}
		})
	}
}

func TestSeedHasTheAgentsConfiguration(t *testing.T) {
	r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) { o.Entry.Destinations.Allow = []string{"10.9.0.0/16"} })
	spec := r.spec()
	spec.ControlKey = provider.NewSecret("too short")
	_, err := r.settle(t.Context(), spec)
	want(t, err, provider.Permanent, "controlKey")
	if strings.Contains(err.Error(), "too short") || strings.Contains(fmt.Sprintf("%+v", spec), "correct-horse") {
		t.Error("a secret is shown")
	}
	if _, err := json.Marshal(spec); err != nil {
		t.Error(err)
	}
	r.mustMake(t)
}

func TestAWaitForAnotherCallEndsWithItsContext(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	held, release := make(chan struct{}), make(chan struct{})
	r.daemon.SetFaults(func(_ context.Context, method, _ string) error {
		if method == "Destroy" {
			close(held)
			<-release
		}
		return nil
	}, nil)
	done := make(chan error, 1)
	go func() { done <- r.Delete(t.Context(), r.ref()) }()
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := r.Create(ctx, r.spec())
	want(t, err, provider.Transient, "waiting for another call")
	if _, err := r.Get(t.Context(), r.ref()); err != nil {
		t.Errorf("a read waits for nobody: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
