// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// changed is a provider of the same entry after another image was written into the providers file: what is published is unwanted.
func changed(t *testing.T, d *libvirttest.Daemon) *rig {
	t.Helper()
	o := options(t, d)
	return rigOver(t, d, o)
}

func (r *rig) base(t *testing.T) string {
	t.Helper()
	for _, v := range r.daemon.VolumeNames() {
		if strings.Contains(v, "-base-") && strings.HasSuffix(v, ".img") {
			return v
		}
	}
	t.Fatalf("no base in %q", r.daemon.VolumeNames())
	return ""
}

func (r *rig) leftovers(t *testing.T, kind provider.LeftoverKind) []provider.Leftover {
	t.Helper()
	all, err := r.Leftovers(t.Context(), hostName)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l provider.Leftover) bool { return l.Kind != kind })
}

// reclaim takes all leftovers of a kind, and says what was removed and why the others were kept.
func (r *rig) reclaim(t *testing.T, kind provider.LeftoverKind, dryRun bool) (removed []string, kept string) {
	t.Helper()
	results, err := r.Reclaim(t.Context(), hostName, r.leftovers(t, kind), dryRun)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		if result.Removed {
			removed = append(removed, result.Object)
		} else {
			kept += result.Kept + "\n"
		}
	}
	return removed, kept
}

func TestABaseGoesInTwoSteps(t *testing.T) {
	made := newRig(t, libvirttest.Config{})
	made.mustMake(t)
	base := made.base(t)
	r := changed(t, made.daemon)
	if removed, kept := r.reclaim(t, provider.LeftoverUnwanted, false); removed != nil || !strings.Contains(kept, "in use by") {
		t.Fatalf("a base in use: removed %q, kept: %s", removed, kept)
	}
	for err := error(nil); !provider.IsNotFound(err); {
		if err = made.Delete(t.Context(), made.ref()); err != nil && !provider.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	before := made.daemon.Dump()
	if removed, _ := r.reclaim(t, provider.LeftoverUnwanted, true); len(removed) != 1 || !slices.Equal(before, made.daemon.Dump()) {
		t.Fatalf("a dry run would remove %q, and left\n%s", removed, strings.Join(made.daemon.Dump(), "\n"))
	}
	if removed, kept := r.reclaim(t, provider.LeftoverUnwanted, false); len(removed) != 1 || !strings.HasPrefix(removed[0], base+".v1.") {
		t.Fatalf("removed %q, kept: %s", removed, kept)
	}
	if !slices.Contains(made.daemon.VolumeNames(), base) {
		t.Fatal("the base went with its marker")
	}
	if removed, kept := r.reclaim(t, provider.LeftoverUnfinished, false); !slices.Equal(removed, []string{base}) {
		t.Fatalf("removed %q, kept: %s", removed, kept)
	}
}

func TestWhatAnybodyRefersToStays(t *testing.T) {
	disk := func(path string) string {
		return "<domain type='kvm'><name>foreign</name><uuid>8f7c1f6e-3c2b-4f3e-9d5e-000000000001</uuid><os><type>hvm</type></os><devices>" +
			"<disk type='file' device='disk'><source file='" + path + "'/><target dev='vda'/></disk></devices></domain>"
	}
	for name, refer := range map[string]func(t *testing.T, d *libvirttest.Daemon, base string){
		"a volume of somebody else's that it backs": func(_ *testing.T, d *libvirttest.Daemon, base string) {
			d.AddOverlay("theirs.qcow2", "/var/lib/libvirt/images/"+base)
		},
		"a volume that it backs by another path": func(_ *testing.T, d *libvirttest.Daemon, base string) {
			d.AddOverlay("theirs.qcow2", "../elsewhere/"+base)
		},
		"a domain without a mark": func(t *testing.T, d *libvirttest.Daemon, base string) {
			if err := d.DefineXML(disk("/srv/link/" + base)); err != nil {
				t.Fatal(err)
			}
		},
		"a domain, only as it runs": func(_ *testing.T, d *libvirttest.Daemon, base string) {
			d.AddDomain("foreign", "", true)
			d.ShowLive("foreign", "<backingStore type='file'><source file='/var/lib/libvirt/images/"+base+"'/></backingStore>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			base := r.names.Base("kvm2-home", "https://gone", "").NewVolume()
			r.daemon.AddVolume(base, "content")
			refer(t, r.daemon, base)
			if removed, kept := r.reclaim(t, provider.LeftoverUnfinished, false); removed != nil || !strings.Contains(kept, "in use by") {
				t.Errorf("removed %q, kept: %s", removed, kept)
			}
			r.daemon.RemoveDomain("foreign")
			_ = r.daemon.Backend().DeleteVolume(t.Context(), "theirs.qcow2")
			if removed, kept := r.reclaim(t, provider.LeftoverUnfinished, false); !slices.Equal(removed, []string{base}) {
				t.Errorf("removed %q, kept: %s", removed, kept)
			}
		})
	}
}

func TestNothingIsRemovedWhileSomethingIsUnknown(t *testing.T) {
	for _, method := range []string{"RefreshPool", "Volumes", "Volume", "Domains", "DomainXML", "LiveXML"} {
		for name, fault := range map[string]error{"a dead link": errors.New("the link is dead"), "the daemon's error": &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "no"}} {
			t.Run(method+": "+name, func(t *testing.T) {
				r := newRig(t, libvirttest.Config{})
				r.daemon.AddVolume(r.names.Base("kvm2-home", "https://gone", "").NewVolume(), "content")
				r.daemon.AddDomain("foreign", "", true)
				chosen := r.leftovers(t, provider.LeftoverUnfinished)
				before := r.daemon.Dump()
				r.daemon.SetFaults(func(_ context.Context, m, _ string) error {
					if m == method {
						return fault
					}
					return nil
				}, nil)
				if _, err := r.Reclaim(t.Context(), hostName, chosen, false); err == nil || !slices.Equal(before, r.daemon.Dump()) {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}

func TestNamesOfOthersAreNeverRemoved(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	other, err := libvirt.NewNames("somebodyelse")
	if err != nil {
		t.Fatal(err)
	}
	foreign := []string{
		other.Base("kvm2-home", "https://gone", "").NewVolume(), r.names.Base("kvm2-home-2", "https://gone", "").NewVolume(),
		r.names.Overlay(r.uid), "debian.img", r.names.Base("kvm2-home", "https://x", "").NewVolume() + ".v7.newer",
	}
	var chosen []provider.Leftover
	for _, v := range foreign {
		r.daemon.AddVolume(v, "theirs")
		for _, kind := range []provider.LeftoverKind{provider.LeftoverUnfinished, provider.LeftoverUnwanted, provider.LeftoverMarker, provider.LeftoverUnreadable} {
			chosen = append(chosen, provider.Leftover{Kind: kind, Object: v})
		}
	}
	before := r.daemon.Dump()
	results, err := r.Reclaim(t.Context(), hostName, chosen, false)
	if err != nil || len(results) != len(chosen) || !slices.Equal(before, r.daemon.Dump()) {
		t.Fatalf("%v, %+v", err, results)
	}
}

func TestAVolumeInTheMakingIsNoLeftover(t *testing.T) {
	uploading, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, libvirttest.Config{})
	r.daemon.SetFaults(nil, func(ctx context.Context, method, object string) error {
		if method != "UploadDone" || !strings.Contains(object, "-base-") {
			return nil
		}
		close(uploading)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	if _, err := r.Create(t.Context(), r.spec()); !provider.IsInProgress(err) {
		t.Fatal(err)
	}
	<-uploading
	if found := r.leftovers(t, provider.LeftoverUnfinished); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	close(goOn)
	r.mustMake(t)
	all, err := r.Leftovers(t.Context(), hostName)
	if err != nil || len(all) != 1 || all[0].Kind != provider.LeftoverInstance {
		t.Errorf("%v, %+v", err, all)
	}
}

// The marker goes at any one call of a Create that uses the base; then the chains are listed, without any grace, and the base goes when the Create
// has ended, whatever it did meanwhile.
func TestCollectingWhileACreateUsesIt(t *testing.T) {
	calls := func() int {
		r := newRig(t, libvirttest.Config{}, quiet)
		r.mustMake(t)
		before := len(r.daemon.Calls())
		r.uid = "8f7c1f6e-3c2b-4f3e-9d5e-000000000002"
		r.mustMake(t)
		return len(r.daemon.Calls()) - before
	}()
	outcomes := map[bool]int{}
	for at := range calls {
		t.Run(fmt.Sprintf("X19: the base is collected at call %d of a Create", at), func(t *testing.T) {
			outcomes[collectDuringCreate(t, at)]++
		})
	}
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Errorf("the %d calls do not lie on both sides of what decides: %v", calls, outcomes)
	}
}

// quiet providers do not look at their hosts by themselves.
func quiet(o *libvirt.Options) { o.CheckInterval = time.Hour }

type whose string

func collectDuringCreate(t *testing.T, at int) (running bool) {
	t.Helper()
	r := newRig(t, libvirttest.Config{}, quiet)
	r.mustMake(t)
	if err := r.Delete(t.Context(), r.ref()); err != nil {
		t.Fatal(err)
	}
	base, collector := r.base(t), changed(t, r.daemon)
	listed, created, collected := make(chan struct{}), make(chan struct{}), make(chan struct{})
	collect := func() {
		defer close(collected)
		ctx := context.WithValue(t.Context(), whose("collector"), true)
		for _, kind := range []provider.LeftoverKind{provider.LeftoverUnwanted, provider.LeftoverUnfinished} {
			if _, err := collector.Reclaim(ctx, hostName, collector.leftovers(t, kind), false); err != nil {
				t.Error(err)
			}
		}
	}
	count := 0
	r.daemon.SetFaults(func(ctx context.Context, method, object string) error {
		switch {
		case ctx.Value(whose("create")) != nil:
			if count++; count-1 == at {
				go collect()
				select {
				case <-listed:
				case <-collected:
				}
			}
		case ctx.Value(whose("collector")) != nil && method == "DeleteVolume" && object == base:
			close(listed)
			<-created
		}
		return nil
	}, nil)
	_, err := r.Create(context.WithValue(t.Context(), whose("create"), true), r.spec())
	close(created)
	<-collected
	running = err == nil
	volumes := r.daemon.VolumeNames()
	overlay := slices.Contains(volumes, r.names.Overlay(r.uid))
	switch {
	case running && !slices.Contains(volumes, base):
		t.Error("the guest runs on nothing")
	case !running && overlay:
		t.Errorf("an overlay is left of what failed: %v", err)
	case !running && provider.KindOf(err) != provider.Transient && provider.KindOf(err) != provider.InProgress:
		t.Errorf("%v", err)
	}
	return running
}

func TestHostsTellWhatTheyAre(t *testing.T) {
	r := newRig(t, libvirttest.Config{Hostname: "kvm-1.example"}, func(o *libvirt.Options) {
		o.Entry.Images["debian"] = config.Image{URL: "file:///nonexistent", Arch: "x86_64"}
		o.CheckInterval = 5 * time.Millisecond
	})
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	until := time.Now().Add(20 * time.Second)
	wait := func(what string, is func(provider.HostState) bool) provider.HostState {
		t.Helper()
		for {
			if s := r.Hosts()[0]; is(s) || time.Now().After(until) {
				if !is(s) {
					t.Fatalf("%s: %+v", what, s)
				}
				return s
			}
			<-poll.C
		}
	}
	s := wait("ready", func(s provider.HostState) bool { return s.Ready })
	if s.HostName != "kvm-1.example" || s.LibvirtVersion != "9.0.0" || s.PoolSeen.IsZero() || s.PoolAvailableGiB != 98 {
		t.Errorf("%+v", s)
	}
	r.daemon.SetFaults(func(context.Context, string, string) error {
		return &libvirt.HostError{Reason: provider.HostUnauthorized, Message: "the host's key is revoked"}
	}, nil)
	s = wait("unauthorized", func(s provider.HostState) bool { return s.Reason == provider.HostUnauthorized })
	if s.Ready || s.RoomKnown || s.HostName != "kvm-1.example" || s.PoolAvailableGiB != 98 || s.PoolSeen.IsZero() || !strings.Contains(s.Message, "revoked") {
		t.Errorf("%+v", s)
	}
}
