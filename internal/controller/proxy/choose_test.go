// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// someHosts are hosts in any condition.
func someHosts(r *rand.Rand) []provider.HostState {
	hosts := make([]provider.HostState, r.IntN(6))
	for i := range hosts {
		hosts[i] = provider.HostState{
			Name: fmt.Sprintf("h%d", i), Ready: r.IntN(4) > 0, Reason: "Unreachable", Unschedulable: r.IntN(6) == 0, RoomKnown: r.IntN(4) > 0,
			FreeMemoryMiB: r.Int64N(4096), PoolAvailableGiB: r.Int64N(6), Instances: r.IntN(6), MaxInstances: r.IntN(8), CPUs: r.IntN(5), MaxVCPUs: r.IntN(3) * 4,
			Lacks: map[string]string{},
		}
		if r.IntN(4) == 0 {
			hosts[i].Lacks["arm"] = "architecture aarch64 (the host is x86_64)"
		}
	}
	return hosts
}

// fits says in its own words whether a host can take an instance beside what is there already.
func fits(d demand, h provider.HostState, l load) bool {
	switch {
	case d.pin != "" && d.pin != h.Name, h.Unschedulable, !h.Ready, d.avoid[h.Name] != "", d.image == "arm" && len(h.Lacks) > 0:
		return false
	case h.MaxInstances > 0 && max(h.Instances, l.instances)+1 > h.MaxInstances:
		return false
	case h.CPUs > 0 && d.vcpus > h.CPUs, h.MaxVCPUs > 0 && l.vcpus+d.vcpus > h.MaxVCPUs:
		return false
	case h.RoomKnown && l.startingMemoryMiB+d.memoryMiB > h.FreeMemoryMiB, h.RoomKnown && (l.starting+1)*firstBootMiB > h.PoolAvailableGiB*1024:
		return false
	}
	return true
}

// Whatever the hosts are like: an instance goes to a host that can take it, if there is one, and to one with as few instances as any of those; the order of
// the hosts decides nothing. Instances that are placed one after the other, before any host shows one of them, never have more together than there is.
func TestX8PlacementOverHosts(t *testing.T) {
	t.Run("X8: ready hosts with room, spread, never beyond what there is", func(t *testing.T) {
		r := rand.New(rand.NewPCG(8, 8))
		for n := range 10_000 {
			hosts, loads := someHosts(r), map[string]load{}
			for i := range 12 {
				d := demand{vcpus: 1 + r.IntN(4), memoryMiB: 64 + r.Int64N(1024), uid: fmt.Sprint(n, "/", i), avoid: map[string]string{}}
				if r.IntN(3) == 0 {
					d.image = "arm"
				}
				if r.IntN(4) == 0 {
					d.pin = fmt.Sprintf("h%d", r.IntN(7))
				}
				if r.IntN(4) == 0 {
					d.avoid[fmt.Sprintf("h%d", r.IntN(6))] = "answered lately that it has no room"
				}
				host := placeOne(t, r, d, hosts, loads)
				if host == "" {
					continue
				}
				l := loads[host]
				loads[host] = load{l.instances + 1, l.vcpus + d.vcpus, l.starting + 1, l.startingMemoryMiB + d.memoryMiB}
			}
		}
	})
}

func placeOne(t *testing.T, r *rand.Rand, d demand, hosts []provider.HostState, loads map[string]load) string {
	t.Helper()
	host, why := choose(d, hosts, loads)
	shuffled := slices.Clone(hosts)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if again, _ := choose(d, shuffled, loads); again != host {
		t.Fatalf("%q or %q, by the order of the hosts\n%+v\n%+v", host, again, d, hosts)
	}
	var fit []provider.HostState
	for _, h := range hosts {
		if fits(d, h, loads[h.Name]) {
			fit = append(fit, h)
		} else if host == "" && (d.pin == "" || d.pin == h.Name) && !strings.Contains(why, h.Name) {
			t.Fatalf("%q does not say why %s will not do", why, h.Name)
		}
	}
	at := slices.IndexFunc(fit, func(h provider.HostState) bool { return h.Name == host })
	if (host == "") != (len(fit) == 0) || host != "" && at < 0 {
		t.Fatalf("chose %q (%s) of those that fit: %+v\n%+v\n%+v", host, why, fit, d, loads)
	}
	for _, h := range fit {
		if has := func(h provider.HostState) int { return max(h.Instances, loads[h.Name].instances) }; has(h) < has(fit[at]) {
			t.Fatalf("%s has fewer than %s: %+v", h.Name, host, loads)
		}
	}
	return host
}

func TestQuotas(t *testing.T) {
	bound := func(n int64) *int64 { return &n }
	entry := &config.Entry{Name: "home", Quotas: []config.Quota{
		{Namespaces: []string{"team-a", "team-b"}, Instances: bound(3), VCPUs: bound(4), MemoryMiB: bound(2048)},
		{Namespaces: []string{config.AllNamespaces}, Instances: bound(1)},
		{Namespaces: []string{"guests"}, Instances: bound(0)},
	}}
	d := demand{vcpus: 2, memoryMiB: 512}
	for name, c := range map[string]struct {
		namespace string
		usage     usage
		says      string
	}{
		"within":                   {"team-a", usage{2, 2, 1536}, ""},
		"one too many":             {"team-b", usage{3, 2, 512}, "may have 3 instances of entry home, and has 3"},
		"too many vCPUs":           {"team-a", usage{1, 3, 512}, "may have 4 vCPUs of entry home, and has 3; this Proxy needs 2"},
		"too much memory":          {"team-a", usage{1, 1, 1537}, "may have 2048 MiB of memory of entry home, and has 1537; this Proxy needs 512"},
		"all others have one":      {"team-c", usage{}, ""},
		"all others have only one": {"team-c", usage{instances: 1}, "may have 1 instances"},
		"none at all":              {"guests", usage{}, "may have 0 instances"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overQuota(entry, c.namespace, d, c.usage); (c.says == "") != (got == "") || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
	if got := overQuota(&config.Entry{}, "team-a", d, usage{1 << 20, 1 << 20, 1 << 40}); got != "" {
		t.Errorf("without a quota: %s", got)
	}
}

// What settled before a host was looked at is in its figures; what did not is counted beside them.
func TestWhatStartsIsCounted(t *testing.T) {
	// The row X8 has its property test above; this is where its loads come from.
	looked := time.Unix(1_800_000_000, 0)
	n := notes{}
	for i, one := range []note{
		{entry: "home", host: "a", needs: needs{1, 100}, settled: looked.Add(-1)},
		{entry: "home", host: "a", needs: needs{2, 200}, settled: looked.Add(1)},
		{entry: "home", host: "a", needs: needs{4, 400}},
		{entry: "other", host: "a", needs: needs{8, 800}},
		{entry: "home", needs: needs{16, 1600}},
		{entry: "home", host: "a", needs: needs{32, 3200}},
	} {
		one.name.Namespace = "team-a"
		n.of(types.UID(fmt.Sprint(i)), func(known *note) { *known = one })
	}
	loads := n.loads("home", "5", map[string]time.Time{"a": looked})
	if want := (load{instances: 3, vcpus: 7, starting: 2, startingMemoryMiB: 600}); loads["a"] != want || len(loads) != 1 {
		t.Errorf("got %+v, want %+v", loads, want)
	}
	if got, want := n.usage("home", "team-a", "5"), (usage{3, 7, 700}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
