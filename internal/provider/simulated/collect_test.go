// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const uidC = "0a1b2c3d-0000-4000-8000-00000000000c"

// crowd is a World with instances of several owners on two hosts, in this process and over a socket.
func crowd(t *testing.T) (*world, map[string]API) {
	t.Helper()
	w := newWorld(t)
	second := HostDescription{Name: "sim-2", Addresses: newNetwork(), Capacity: 100}
	first := HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100}
	otherEntry, otherCluster := Owner{Cluster: cluster, Entry: "other"}, Owner{Cluster: "deadbeef", Entry: "sim"}
	for _, o := range []Owner{owner, otherEntry, otherCluster} {
		w.attach(t, o, first, second)
	}
	for _, made := range []struct {
		owner     Owner
		host, uid string
	}{{owner, "sim-1", uidA}, {owner, "sim-1", uidB}, {owner, "sim-2", uidC}, {otherEntry, "sim-1", uidC}, {otherCluster, "sim-1", uidA}} {
		spec := specOn(w.port, made.uid, "shop-"+made.uid[len(made.uid)-1:])
		spec.Host = made.host
		if _, err := w.Create(t.Context(), made.owner, spec); err != nil {
			t.Fatal(err)
		}
	}
	path := socketPath(t)
	serveWorld(t, path, w)
	client := NewClient(path)
	t.Cleanup(client.Close)
	return w, map[string]API{"in the process": w.World, "over a socket": client}
}

func left(uid, proxy string) provider.Leftover {
	return provider.Leftover{
		Kind: provider.LeftoverInstance, Object: instanceName(cluster, uid), UID: provider.CompactUID(uid), Why: "no Proxy has its UID; it was made for shop/" + proxy,
	}
}

func TestLeftovers(t *testing.T) {
	w, apis := crowd(t)
	if err := w.Retain(t.Context(), owner, provider.InstanceRef{Host: "sim-1", UID: uidB}); err != nil {
		t.Fatal(err)
	}
	retained := left(uidB, "shop-b")
	retained.Retained = true
	want := []provider.Leftover{
		left(uidA, "shop-a"), retained,
		{Kind: provider.LeftoverForeign, Object: instanceName(cluster, uidC), Entry: "other", Why: "its mark names entry other"},
		{Kind: provider.LeftoverForeign, Object: instanceName("deadbeef", uidA), Why: "it is of another cluster"},
	}
	for name, api := range apis {
		got, err := api.Leftovers(t.Context(), owner, "sim-1")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if got, err = api.Leftovers(t.Context(), owner, "sim-2"); err != nil || len(got) != 1 || got[0] != left(uidC, "shop-c") {
			t.Errorf("%s: the other host: %+v, %v", name, got, err)
		}
		_, err = api.Leftovers(t.Context(), owner, "sim-3")
		wantError(t, name+": a host that there is not", err, provider.Transient, ReasonNotAttached)
	}
	if err := w.SetFault(t.Context(), Rule{Fault: config.FaultHostDown, Hosts: "sim-1"}); err != nil {
		t.Fatal(err)
	}
	for name, api := range apis {
		all, err := api.Leftovers(t.Context(), owner, "sim-1")
		wantError(t, name+": a host that is down", err, provider.Transient, provider.HostUnreachable)
		if all != nil {
			t.Errorf("%s: and yet %+v", name, all)
		}
		if _, err := api.Leftovers(t.Context(), owner, "sim-2"); err != nil {
			t.Errorf("%s: the host beside it: %v", name, err)
		}
	}
}

func TestReclaim(t *testing.T) {
	for _, mode := range []string{"in the process", "over a socket"} {
		t.Run(mode, func(t *testing.T) {
			w, apis := crowd(t)
			api := apis[mode]
			count := func() int {
				all, err := w.Instances(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return len(all)
			}
			foreign := provider.Leftover{Kind: provider.LeftoverInstance, Object: instanceName(cluster, uidC), UID: provider.CompactUID(uidC)}
			theirs := provider.Leftover{Kind: provider.LeftoverInstance, Object: instanceName("deadbeef", uidA), UID: provider.CompactUID(uidA)}
			other := left(uidA, "shop-a")
			other.UID = provider.CompactUID(uidB)
			chosen := []provider.Leftover{left(uidA, "shop-a"), left(uidB, "shop-b"), foreign, theirs, other, left("0a1b2c3d-0000-4000-8000-00000000000d", "shop-d")}
			if err := w.Retain(t.Context(), owner, provider.InstanceRef{Host: "sim-1", UID: uidB}); err != nil {
				t.Fatal(err)
			}
			want := []provider.Reclaimed{
				{Leftover: chosen[0], Removed: true}, {Leftover: chosen[1], Kept: "its mark says that it is retained"},
				{Leftover: chosen[2], Kept: "it is not ours", Moot: true}, {Leftover: chosen[3], Kept: "it is not ours", Moot: true},
				{Leftover: chosen[4], Kept: "it is no instance any more", Moot: true}, {Leftover: chosen[5], Kept: "it is gone", Moot: true},
			}
			got, err := api.Reclaim(t.Context(), owner, "sim-1", chosen, true)
			if diff := cmp.Diff(want, got); err != nil || diff != "" || count() != 5 {
				t.Errorf("dry run: %v, %d instances\n%s", err, count(), diff)
			}
			want[4].Kept = "it is gone"
			got, err = api.Reclaim(t.Context(), owner, "sim-1", chosen, false)
			if diff := cmp.Diff(want, got); err != nil || diff != "" || count() != 4 {
				t.Errorf("%v, %d instances\n%s", err, count(), diff)
			}
			if _, err := w.Get(t.Context(), owner, refA); !provider.IsNotFound(err) {
				t.Errorf("what was removed: %v", err)
			}
		})
	}
}

func TestReclaimTellsWhatWentBeforeItFailed(t *testing.T) {
	for _, mode := range []string{"in the process", "over a socket"} {
		t.Run(mode, func(t *testing.T) {
			w, apis := crowd(t)
			if err := w.SetFault(t.Context(), Rule{Fault: config.FaultDeleteFails, Proxies: "shop-b"}); err != nil {
				t.Fatal(err)
			}
			got, err := apis[mode].Reclaim(t.Context(), owner, "sim-1", []provider.Leftover{left(uidA, "shop-a"), left(uidB, "shop-b")}, false)
			var known *provider.Error
			if !errors.As(err, &known) || known.Kind != provider.Transient || len(got) != 1 || !got[0].Removed || got[0].UID != provider.CompactUID(uidA) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
