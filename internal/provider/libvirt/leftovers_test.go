// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func never(string) bool { return false }

func markerOf(t testing.TB, volume string) string {
	t.Helper()
	marker, err := Marker(volume, Content{SHA256: strings.Repeat("ab", 32), Size: 7, Format: formatRaw, VirtualSize: 9})
	if err != nil {
		t.Fatal(err)
	}
	return marker
}

func TestLeftovers(t *testing.T) {
	n := Names{"0123456789ab"}
	wanted, other := n.Base("home", "https://a", ""), n.Base("home", "https://b", "")
	agent := n.Agent("home", archX86, "00")
	volume := func(s Source, unique string) string { return s.stem + "-" + strings.Repeat(unique, 12) + ".img" }
	low, high, gone, old := volume(wanted, "1"), volume(wanted, "2"), volume(wanted, "0"), volume(other, "1")
	oldAgent := volume(agent, "1")
	newer := volume(n.Base("home", "https://c", ""), "1")
	for name, test := range map[string]struct {
		volumes []string
		busy    string
		want    []provider.Leftover
	}{
		"what is wanted": {volumes: []string{low, markerOf(t, low)}},
		"what was never published": {
			volumes: []string{high, low, markerOf(t, low)}, want: []provider.Leftover{{Kind: provider.LeftoverUnfinished, Object: high}},
		},
		"what is being written": {volumes: []string{high}, busy: high},
		"two published at once: the lowest stays": {
			volumes: []string{high, markerOf(t, high), low, markerOf(t, low)},
			want:    []provider.Leftover{{Kind: provider.LeftoverUnwanted, Object: markerOf(t, high)}},
		},
		"a marker without its volume decides nothing": {
			volumes: []string{markerOf(t, gone), low, markerOf(t, low)},
			want:    []provider.Leftover{{Kind: provider.LeftoverMarker, Object: markerOf(t, gone)}},
		},
		"what is in no catalogue": {
			volumes: []string{old, markerOf(t, old), oldAgent, markerOf(t, oldAgent)},
			want: []provider.Leftover{
				{Kind: provider.LeftoverUnwanted, Object: markerOf(t, oldAgent)}, {Kind: provider.LeftoverUnwanted, Object: markerOf(t, old)},
			},
		},
		"the marker of a newer version protects all of its source": {
			volumes: []string{newer, newer + ".v2.whatever", strings.Replace(newer, "-111111111111", "-222222222222", 1)},
			want:    []provider.Leftover{{Kind: provider.LeftoverUnreadable, Object: newer + ".v2.whatever"}},
		},
		"a marker that is broken protects its volume": {
			volumes: []string{low, low + ".old"}, want: []provider.Leftover{{Kind: provider.LeftoverUnreadable, Object: low + ".old"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := n.leftovers("home", test.volumes, func(s Source) bool { return s == wanted }, func(v string) bool { return v == test.busy })
			for i := range got {
				if got[i].Why == "" {
					t.Errorf("%+v does not say why", got[i])
				}
				got[i].Why = ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// foreignNames are names that look like those of the entry "home" of the cluster, and are not; but for one, which ends in ".img.d" and might be a
// marker, perhaps with more after it.
func foreignNames(n Names, r *rand.Rand) []string {
	hex := func(length int) string {
		var b strings.Builder
		for range length {
			fmt.Fprintf(&b, "%x", r.IntN(16))
		}
		return b.String()
	}
	var all []string
	for _, entry := range []string{"hom", "home-2", "home-" + hex(8), "home-x86_64", "x-home", "home-base"} {
		all = append(all, n.Base(entry, hex(4), "").NewVolume(), n.Agent(entry, archX86, hex(4)).NewVolume())
	}
	for _, cluster := range []string{"0123456789abc", "0123456789a", "another"} {
		other := Names{cluster}
		all = append(all, other.Base("home", hex(4), "").NewVolume(), other.Agent("home", archARM, hex(4)).NewVolume())
	}
	uid := "8f7c1f6e-3c2b-4f3e-9d5e-" + hex(12)
	all = append(all, n.Overlay(uid), n.Seed(uid), "debian.img", n.bases("home")+hex(32)+".img", n.bases("home")+hex(31)+"-"+hex(12)+".img",
		n.bases("home")+hex(32)+"-"+hex(12)+".img.d", n.bases("home")+hex(32)+"-"+strings.ToUpper(hex(11))+"F.img", n.bases("home")+hex(32)+"-"+hex(12)+".imgx")
	for _, name := range slices.Clone(all) {
		if r.IntN(2) == 0 {
			all = append(all, name+".v1.x", name+".bak")
		}
	}
	return all
}

func TestNothingForeignIsALeftover(t *testing.T) {
	n := Names{"0123456789ab"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		volumes := foreignNames(n, r)
		r.Shuffle(len(volumes), func(i, j int) { volumes[i], volumes[j] = volumes[j], volumes[i] })
		for _, l := range n.leftovers("home", volumes, func(Source) bool { return false }, never) {
			if l.Kind != provider.LeftoverUnreadable || !strings.Contains(l.Object, ".img.d") {
				t.Fatalf("%+v is not ours", l)
			}
		}
	}
}

// In every pool: what is published lowest of a wanted source stays, nothing with a marker is unfinished, and what cannot be read is never more
// than reported.
func TestLeftoversOfAnyPool(t *testing.T) {
	n := Names{"0123456789ab"}
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var sources []Source
		for i := range 4 {
			sources = append(sources, n.Base("home", fmt.Sprint("https://", i), ""))
		}
		wanted := func(s Source) bool { return s == sources[0] || s == sources[1] }
		volumes := foreignNames(n, r)
		for _, s := range sources {
			for range r.IntN(4) {
				v := s.NewVolume()
				switch r.IntN(5) {
				case 0:
					volumes = append(volumes, v)
				case 1, 2:
					volumes = append(volumes, v, markerOf(t, v))
				case 3:
					volumes = append(volumes, markerOf(t, v))
				case 4:
					volumes = append(volumes, v, v+".v2.later")
				}
			}
		}
		slices.Sort(volumes)
		for _, l := range n.leftovers("home", volumes, wanted, never) {
			volume := n.volumeOf("home", l.Object)
			source, ok := n.sourceOf("home", volume)
			if !ok || !slices.Contains(volumes, l.Object) {
				t.Fatalf("%+v", l)
			}
			used, published, err := FindPublished(volumes, source)
			marked := slices.ContainsFunc(volumes, func(v string) bool { return strings.HasPrefix(v, volume+".") })
			switch {
			case l.Kind == provider.LeftoverUnreadable:
			case err != nil:
				t.Fatalf("%+v: its source has a marker that cannot be read", l)
			case l.Kind == provider.LeftoverUnfinished && marked:
				t.Fatalf("%+v has a marker", l)
			case l.Kind == provider.LeftoverUnwanted && wanted(source) && (!published || used.Marker == l.Object):
				t.Fatalf("%+v is what a Create uses", l)
			}
		}
	}
}
