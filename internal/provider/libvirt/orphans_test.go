// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// anew is another operator of the same cluster and entry, which remembers nothing.
func (r *rig) anew(t *testing.T) *rig {
	t.Helper()
	again := changed(t, r.daemon)
	again.uid = r.uid
	return again
}

func (r *rig) all(t *testing.T) []provider.Leftover {
	t.Helper()
	all, err := r.Leftovers(t.Context(), hostName)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// markAs rewrites the mark of the instance's domain.
func (r *rig) markAs(t *testing.T, change func(string) string) {
	t.Helper()
	b := r.daemon.Backend()
	text, err := b.Metadata(t.Context(), r.domain(), libvirt.MarkNamespace)
	if err != nil {
		t.Fatal(err)
	}
	changed := change(text)
	if changed == text {
		t.Fatalf("nothing to change in %s", text)
	}
	if err := b.SetMetadata(t.Context(), r.domain(), libvirt.MarkNamespace, "egress", changed); err != nil {
		t.Fatal(err)
	}
}

// created replaces the time in a mark.
func created(value string) func(string) string {
	return func(mark string) string {
		before, rest, _ := strings.Cut(mark, ` created="`)
		_, after, _ := strings.Cut(rest, `"`)
		return before + value + after
	}
}

func TestInstancesAreCollected(t *testing.T) {
	t.Run("a domain goes with its volumes, and nothing else does", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		other := r.anew(t)
		other.uid = "8f7c1f6e-3c2b-4f3e-9d5e-000000000002"
		other.mustMake(t)
		gone := func(o provider.Leftover) bool { return o.UID == provider.CompactUID(r.uid) }
		chosen := slices.DeleteFunc(other.all(t), func(l provider.Leftover) bool { return !gone(l) })
		if len(chosen) != 1 || chosen[0].Kind != provider.LeftoverInstance || chosen[0].Object != r.domain() || chosen[0].Retained {
			t.Fatalf("%+v", chosen)
		}
		before := r.daemon.Dump()
		if results, err := other.Reclaim(t.Context(), hostName, chosen, true); err != nil || !results[0].Removed || !slices.Equal(before, r.daemon.Dump()) {
			t.Errorf("a dry run: %v, %+v", err, results)
		}
		if results, err := other.Reclaim(t.Context(), hostName, chosen, false); err != nil || !results[0].Removed {
			t.Errorf("%v, %+v", err, results)
		}
		left := slices.DeleteFunc(before, func(line string) bool { return strings.Contains(line, provider.CompactUID(r.uid)) })
		if diff := cmp.Diff(left, r.daemon.Dump()); diff != "" {
			t.Error(diff)
		}
	})
	for name, volumes := range map[string]func(*rig) []string{
		"an overlay without a domain": func(r *rig) []string { return []string{r.names.Overlay(r.uid)} },
		"overlay and seed":            func(r *rig) []string { return []string{r.names.Overlay(r.uid), r.names.Seed(r.uid)} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			for _, v := range volumes(r) {
				r.daemon.AddVolume(v, "ours")
			}
			if removed, kept := r.reclaim(t, provider.LeftoverDisk, false); !slices.Equal(removed, volumes(r)) {
				t.Errorf("removed %q, kept: %s", removed, kept)
			}
			if left := r.ours(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
	for _, value := range []string{` created="2126-01-01T00:00:00Z"`, ` created="yesterday"`, ` created=""`, ""} {
		t.Run("L9: a mark's time decides nothing, and is never in the future:"+value, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.mustMake(t)
			r.markAs(t, created(value))
			if i, err := r.anew(t).Get(t.Context(), r.ref()); err != nil || i.Created.After(time.Now()) {
				t.Errorf("it was made at %s, %v", i.Created, err)
			}
			if removed, kept := r.anew(t).reclaim(t, provider.LeftoverInstance, false); len(removed) != 1 {
				t.Errorf("removed %q, kept: %s", removed, kept)
			}
		})
	}
	t.Run("a mark whose UID is written in another way is that UID's", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		r.markAs(t, func(mark string) string { return strings.Replace(mark, r.uid, " "+strings.ToUpper(r.uid)+" ", 1) })
		if found := r.anew(t).leftovers(t, provider.LeftoverInstance); len(found) != 1 || found[0].UID != provider.CompactUID(r.uid) {
			t.Errorf("%+v", found)
		}
	})
}

func TestInstancesThatAreKept(t *testing.T) {
	for _, c := range []struct {
		name string
		// change comes after the instance was found.
		change func(*testing.T, *rig)
		kept   string
	}{
		{"retained meanwhile", func(t *testing.T, r *rig) {
			if err := r.anew(t).Retain(t.Context(), r.ref()); err != nil {
				t.Fatal(err)
			}
		}, "retained"},
		{"its mark is gone", func(t *testing.T, r *rig) {
			r.daemon.RemoveDomain(r.domain())
			r.daemon.AddDomain(r.domain(), "", true)
		}, "no mark of ours"},
		{"its mark is another's", func(t *testing.T, r *rig) {
			r.markAs(t, func(m string) string { return strings.Replace(m, `cluster="`+cluster, `cluster="anothercluster`, 1) })
		}, "belongs to cluster"},
		{"its mark is of a newer version", func(t *testing.T, r *rig) {
			r.markAs(t, func(m string) string { return strings.Replace(m, ` version="1"`, ` version="2"`, 1) })
		}, "version 2"},
		{"somebody's disk is backed by its overlay", func(_ *testing.T, r *rig) {
			r.daemon.AddOverlay("theirs.qcow2", "/var/lib/libvirt/images/"+r.names.Overlay(r.uid))
		}, "in use by volume theirs.qcow2"},
		{"somebody's domain has its overlay", func(t *testing.T, r *rig) {
			err := r.daemon.DefineXML("<domain type='kvm'><name>theirs</name><uuid>8f7c1f6e-3c2b-4f3e-9d5e-000000000001</uuid><os><type>hvm</type></os><devices>" +
				"<disk type='file' device='disk'><source file='/srv/" + r.names.Overlay(r.uid) + "'/><target dev='vda'/></disk></devices></domain>")
			if err != nil {
				t.Fatal(err)
			}
		}, "in use by domain theirs"},
		{"somebody took a snapshot of it into a file outside of the pool", func(_ *testing.T, r *rig) {
			r.daemon.ShowLive(r.domain(), "<disk type='file' device='disk'><source file='/home/me/snap.qcow2'/><target dev='vdz'/></disk>")
		}, "/home/me/snap.qcow2"},
		{"it is gone", func(_ *testing.T, r *rig) { r.daemon.RemoveDomain(r.domain()) }, "no instance any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{})
			r.mustMake(t)
			collector := r.anew(t)
			chosen := collector.leftovers(t, provider.LeftoverInstance)
			c.change(t, r)
			before := r.daemon.Dump()
			results, err := collector.Reclaim(t.Context(), hostName, chosen, false)
			if err != nil || len(results) != 1 || results[0].Removed || !strings.Contains(results[0].Kept, c.kept) {
				t.Errorf("%v, %+v", err, results)
			}
			if diff := cmp.Diff(before, r.daemon.Dump()); diff != "" {
				t.Errorf("it was changed:\n%s", diff)
			}
		})
	}
	// X13 is proven on the real host.
	t.Run("an instance that is retained is told as such, and stays", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		found := r.leftovers(t, provider.LeftoverInstance)
		if err := r.Retain(t.Context(), r.ref()); err != nil {
			t.Fatal(err)
		}
		for name, operator := range map[string]*rig{"the operator that retained it": r, "the next": r.anew(t)} {
			if again := operator.leftovers(t, provider.LeftoverInstance); len(again) != 1 || !again[0].Retained {
				t.Errorf("%s: %+v", name, again)
			}
		}
		before := r.daemon.Dump()
		if results, err := r.Reclaim(t.Context(), hostName, found, false); err != nil || results[0].Removed || !slices.Equal(before, r.daemon.Dump()) {
			t.Errorf("%v, %+v", err, results)
		}
	})
	t.Run("a volume that a renamed domain has", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		r.mustMake(t)
		text, err := r.daemon.Backend().DomainXML(t.Context(), r.domain())
		if err != nil {
			t.Fatal(err)
		}
		r.daemon.RemoveDomain(r.domain())
		if err := r.daemon.DefineXML(strings.Replace(text, "<name>"+r.domain(), "<name>renamed", 1)); err != nil {
			t.Fatal(err)
		}
		if removed, kept := r.anew(t).reclaim(t, provider.LeftoverDisk, false); removed != nil || !strings.Contains(kept, "in use by domain renamed") {
			t.Errorf("removed %q, kept: %s", removed, kept)
		}
	})
}

func TestAnInstanceInTheMakingHasNoDisksLeft(t *testing.T) {
	r := newRig(t, libvirttest.Config{}, quiet)
	looked := false
	r.daemon.SetFaults(func(_ context.Context, method, object string) error {
		if method == "Define" && !looked {
			looked = true
			if found := r.leftovers(t, provider.LeftoverDisk); len(found) != 0 {
				t.Errorf("%+v", found)
			}
		}
		return nil
	}, nil)
	if r.mustMake(t); !looked {
		t.Error("nothing was defined")
	}
}

func TestForeignLeftoversAreTold(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	other, err := libvirt.NewNames("anothercluster")
	if err != nil {
		t.Fatal(err)
	}
	r.daemon.AddDomain(r.domain(), "", true)
	r.daemon.AddDomain(other.Domain(r.uid), "", true)
	r.daemon.AddDomain("egress-gateway", "", true)
	theirs := r.names.Base("kvm2-old", "https://gone", "").NewVolume()
	for _, v := range []string{theirs, theirs + ".v9.newer", other.Overlay(r.uid), "egress-notes.txt"} {
		r.daemon.AddVolume(v, "theirs")
	}
	want := []provider.Leftover{
		{Object: r.domain()}, {Object: other.Domain(r.uid)}, {Object: theirs, Entry: "kvm2-old"}, {Object: theirs + ".v9.newer", Entry: "kvm2-old"}, {Object: other.Overlay(r.uid)},
	}
	all := r.all(t)
	var got []provider.Leftover
	for _, l := range all {
		if l.Kind == provider.LeftoverForeign {
			got = append(got, provider.Leftover{Object: l.Object, Entry: l.Entry})
		}
	}
	order := func(a, b provider.Leftover) int { return strings.Compare(a.Object, b.Object) }
	slices.SortFunc(want, order)
	slices.SortFunc(got, order)
	if diff := cmp.Diff(want, got); diff != "" || len(all) != len(got) {
		t.Errorf("%d in all\n%s", len(all), diff)
	}
	before := r.daemon.Dump()
	results, err := r.Reclaim(t.Context(), hostName, all, false)
	if err != nil || len(results) != len(all) || slices.ContainsFunc(results, func(r provider.Reclaimed) bool { return r.Removed }) || !slices.Equal(before, r.daemon.Dump()) {
		t.Errorf("%v, %+v", err, results)
	}
}

func TestAnInstanceWithANewerMarkIsTold(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	r.markAs(t, func(m string) string { return strings.Replace(m, ` version="1"`, ` version="2"`, 1) })
	collector := r.anew(t)
	if found := collector.leftovers(t, provider.LeftoverNewer); len(found) != 1 || found[0].Object != r.domain() || found[0].UID != "" {
		t.Errorf("%+v", found)
	}
	for _, kind := range []provider.LeftoverKind{provider.LeftoverInstance, provider.LeftoverDisk, provider.LeftoverForeign} {
		if found := collector.leftovers(t, kind); len(found) != 0 {
			t.Errorf("%+v", found)
		}
	}
	before := r.daemon.Dump()
	if removed, kept := collector.reclaim(t, provider.LeftoverNewer, false); removed != nil || !strings.Contains(kept, "newer version") || !slices.Equal(before, r.daemon.Dump()) {
		t.Errorf("removed %q, kept: %s", removed, kept)
	}
}

func TestAnInstanceOfAnotherEntryIsForeign(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	o := options(t, r.daemon)
	o.Entry.Name = "kvm2-new"
	renamed := rigOver(t, r.daemon, o)
	found := renamed.leftovers(t, provider.LeftoverForeign)
	if !slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Object == r.domain() && l.Entry == "kvm2-home" }) {
		t.Errorf("%+v", found)
	}
	if mine := renamed.leftovers(t, provider.LeftoverInstance); len(mine) != 0 {
		t.Errorf("%+v", mine)
	}
}

func TestLeftoversAreCompleteOrAnError(t *testing.T) {
	for _, method := range []string{"Volumes", "Domains", "Metadata"} {
		for name, fault := range map[string]error{"the link dies": errLink, "the daemon fails": &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "no"}} {
			t.Run(fmt.Sprintf("M15: %s before %s, and the leftovers fail as a whole", name, method), func(t *testing.T) {
				r := newRig(t, libvirttest.Config{}, quiet)
				r.mustMake(t)
				collector := rigOver(t, r.daemon, func() libvirt.Options { o := options(t, r.daemon); quiet(&o); return o }())
				collector.looked(t)
				r.daemon.SetFaults(failing(method, fault), nil)
				if all, err := collector.Leftovers(t.Context(), hostName); err == nil || all != nil {
					t.Errorf("%+v, %v", all, err)
				}
			})
		}
	}
}

// looked waits for the provider's own first look at its host, which reads marks too, and has another one read them.
func (r *rig) looked(t *testing.T) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for r.Hosts()[0].Reason == provider.HostUnknown {
		select {
		case <-poll.C:
		case <-t.Context().Done():
			t.Fatal("the host is never looked at")
		}
	}
	r.daemon.RemoveDomain(r.domain())
	r.daemon.AddDomain(r.names.Domain("8f7c1f6e-3c2b-4f3e-9d5e-000000000009"), "", true)
}

func TestNothingOfAnInstanceIsRemovedWhileSomethingIsUnknown(t *testing.T) {
	for _, method := range []string{"RefreshPool", "Volumes", "Volume", "Domains", "Domain", "Metadata", "DomainXML", "LiveXML"} {
		t.Run(method, func(t *testing.T) {
			r := newRig(t, libvirttest.Config{}, quiet)
			r.mustMake(t)
			chosen := r.leftovers(t, provider.LeftoverInstance)
			before := r.daemon.Dump()
			r.daemon.SetFaults(failing(method, errLink), nil)
			if _, err := r.Reclaim(t.Context(), hostName, chosen, false); err == nil || !slices.Equal(before, r.daemon.Dump()) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A volume of an instance is never taken while anybody makes the instance: the two take turns.
func TestCollectingWaitsForACreate(t *testing.T) {
	r := newRig(t, libvirttest.Config{}, quiet)
	r.daemon.AddVolume(r.names.Overlay(r.uid), "of a crash")
	chosen := r.leftovers(t, provider.LeftoverDisk)
	collected := make(chan []provider.Reclaimed, 1)
	started := false
	r.daemon.SetFaults(func(_ context.Context, method, _ string) error {
		if method == "Define" && !started {
			started = true
			go func() {
				results, err := r.Reclaim(t.Context(), hostName, chosen, false)
				if err != nil {
					t.Error(err)
				}
				collected <- results
			}()
		}
		return nil
	}, nil)
	r.mustMake(t)
	if results := <-collected; results[0].Removed {
		t.Errorf("%+v", results)
	}
	if i, err := r.Get(t.Context(), r.ref()); err != nil || i.State != provider.StateRunning || !slices.Contains(r.daemon.VolumeNames(), r.names.Overlay(r.uid)) {
		t.Errorf("%+v, %v", i, err)
	}
}

// The entry whose host comes back: what was abandoned is an instance of it as before.
func TestWhatWasAbandonedIsFoundWhenItsHostReturns(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	o := options(t, r.daemon)
	o.Entry.Hosts = []config.Host{{Name: "kvm-2", Address: "198.51.100.8", Pool: "default", Bridge: "br0"}}
	o.Backend = func(config.Host) libvirt.Backend { return libvirttest.New(libvirttest.Config{}).Backend() }
	without := rigOver(t, r.daemon, o)
	if _, err := without.Leftovers(t.Context(), hostName); err == nil {
		t.Error("a host that is not configured has leftovers")
	}
	if removed, kept := r.anew(t).reclaim(t, provider.LeftoverInstance, false); len(removed) != 1 {
		t.Errorf("removed %q, kept: %s", removed, kept)
	}
}
