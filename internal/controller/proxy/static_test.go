// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func slotsOf(prefixes ...string) []config.Slot {
	var all []config.Slot
	for _, text := range prefixes {
		all = append(all, config.Slot{Address: netip.MustParsePrefix(text)})
	}
	return all
}

func TestAssign(t *testing.T) {
	v4 := slotsOf("198.51.100.1/24", "198.51.100.2/24", "198.51.100.3/24")
	v6 := slotsOf("2001:db8::1/64", "2001:db8::2/64")
	at := netip.MustParseAddr
	for name, test := range map[string]struct {
		has   []netip.Addr
		slots []config.Slot
		held  map[netip.Addr]string
		want  []string
		says  string
	}{
		"no pools":          {want: nil},
		"keeps what it has": {[]netip.Addr{at("198.51.100.2")}, v4, nil, []string{"198.51.100.2"}, ""},
		"its own mark is no other": {
			[]netip.Addr{at("198.51.100.2")}, v4, map[netip.Addr]string{at("198.51.100.2"): strings.ToUpper(testUID)}, []string{"198.51.100.2"}, "",
		},
		"leaves what another has": {
			[]netip.Addr{at("198.51.100.2")}, v4, map[netip.Addr]string{at("198.51.100.2"): "b", at("198.51.100.1"): "c"}, []string{"198.51.100.3"}, "",
		},
		"leaves what the pools have no more": {
			[]netip.Addr{at("192.0.2.1")}, v4[:1], nil, []string{"198.51.100.1"}, "",
		},
		"one of each family": {
			[]netip.Addr{at("2001:db8::2"), at("198.51.100.3")}, slices.Concat(v6, v4), nil, []string{"198.51.100.3", "2001:db8::2"}, "",
		},
		"exhausted": {
			nil, slices.Concat(v4[:1], v6), map[netip.Addr]string{at("198.51.100.1"): "b"}, nil, "all 1 IPv4 addresses of its addressPools are in use",
		},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, exhausted := assign(testUID, test.has, test.slots, test.held)
			if diff := cmp.Diff(test.want, texts(addressesOf(chosen))); diff != "" || exhausted != test.says {
				t.Errorf("exhausted %q\n%s", exhausted, diff)
			}
		})
	}
}

const testUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"

// Proxies come and go, statuses are lost, pools change: no two ever hold one address, nobody's changes without need, and a pool is full only
// when every address is held.
func TestAssignedAddressesNeverClash(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 1 + random.IntN(8)
		var slots []config.Slot
		for i := range size {
			slots = append(slots, slotsOf(fmt.Sprintf("198.51.100.%d/24", i+1))...)
		}
		held, has := map[netip.Addr]string{}, map[string]netip.Addr{}
		for range 50 {
			uid := fmt.Sprint("proxy-", random.IntN(10))
			if a, ok := has[uid]; ok && random.IntN(2) == 0 {
				delete(has, uid)
				delete(held, a)
				continue
			}
			known := []netip.Addr{has[uid]}
			if random.IntN(4) == 0 {
				known = nil // the status was lost, the mark was not
			}
			chosen, exhausted := assign(uid, known, slots, held)
			again, _ := assign(uid, known, slots, held)
			before, had := has[uid]
			switch {
			case exhausted != "":
				if len(held) < size || had {
					t.Fatalf("seed %d: exhausted with %d of %d held", seed, len(held), size)
				}
				continue
			case !cmp.Equal(texts(addressesOf(chosen)), texts(addressesOf(again))):
				t.Fatalf("seed %d: two answers to one question", seed)
			}
			a := chosen[0].Address.Addr()
			if holder := held[a]; holder != "" && holder != uid {
				t.Fatalf("seed %d: %s is given to %s, and %s has it", seed, a, uid, holder)
			}
			if had && known != nil && a != before {
				t.Fatalf("seed %d: %s had %s and got %s", seed, uid, before, a)
			}
			delete(held, before)
			held[a], has[uid] = uid, a
		}
	}
}

func TestNICOfSlots(t *testing.T) {
	server, gateway := netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("198.51.100.1")
	slots := slotsOf("198.51.100.7/24", "2001:db8::7/64")
	slots[0].Gateway, slots[1].Gateway = gateway, netip.MustParseAddr("2001:db8::1")
	slots[0].Nameservers, slots[1].Nameservers = []netip.Addr{server}, []netip.Addr{server}
	slots[1].MAC = "52:54:00:12:34:56"
	got := nicOf(slots)
	if got.MAC != slots[1].MAC || len(got.Addresses) != 2 || len(got.Gateways) != 2 || len(got.Nameservers) != 1 {
		t.Errorf("%+v", got)
	}
	if none := nicOf(nil); none.MAC != "" || none.Addresses != nil {
		t.Errorf("without a pool: %+v", none)
	}
}

func TestAddressDrift(t *testing.T) {
	at, gateway, server := netip.MustParseAddr, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.53")
	slots := []config.Slot{{Address: netip.MustParsePrefix("198.51.100.7/24"), Gateway: gateway, Nameservers: []netip.Addr{server}, MAC: "52:54:00:00:00:07"}}
	with := func(change func(*provider.NIC)) provider.NIC {
		nic := nicOf(slots)
		change(&nic)
		return nic
	}
	for name, test := range map[string]struct {
		slots []config.Slot
		has   provider.NIC
		want  []string
	}{
		"no pools, DHCP":     {nil, provider.NIC{}, nil},
		"as the pool has it": {slots, nicOf(slots), nil},
		"gone from the pools": {
			slots, with(func(n *provider.NIC) { n.Addresses[0] = netip.MustParsePrefix("198.51.100.8/24") }), []string{"addressPools: no longer have 198.51.100.8"},
		},
		"pools are gone": {nil, nicOf(slots), []string{"addressPools: no longer have 198.51.100.7"}},
		"pools are new":  {slots, provider.NIC{}, []string{"addressPools: the guest asks by DHCP"}},
		"another network": {
			slots, with(func(n *provider.NIC) { n.Addresses[0] = netip.MustParsePrefix("198.51.100.7/25") }), []string{"addressPools: the network of 198.51.100.7 changed"},
		},
		"another gateway": {
			slots, with(func(n *provider.NIC) { n.Gateways[0] = at("198.51.100.2") }), []string{"addressPools: the gateway of 198.51.100.7 changed"},
		},
		"a name server more": {
			slots, with(func(n *provider.NIC) { n.Nameservers = nil }), []string{"addressPools: the nameservers of 198.51.100.7 changed"},
		},
		"another MAC": {slots, with(func(n *provider.NIC) { n.MAC = "" }), []string{"addressPools: the macs of 198.51.100.7 changed"}},
		"a mark that does not have all of it": {
			slots, provider.NIC{Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24")}}, nil,
		},
	} {
		if diff := cmp.Diff(test.want, addressDrift(test.slots, test.has)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWhatTheEntryGivesGuestsDrifts(t *testing.T) {
	is := provider.Instance{Shape: provider.Shape{EntryDataSHA256: "a"}}
	if got := drifts(provider.Shape{EntryDataSHA256: "b"}, "", is); len(got) != 1 || !strings.Contains(got[0], "vendorData") {
		t.Errorf("%q", got)
	}
}

func TestTheOverlapIsShownUntilItIsOver(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	p := newPass(&v1alpha1.Proxy{}, Set{}, now)
	p.secretVersion = "7"
	p.inForce(true, time.Minute)
	if c := p.proxy.Status.Credentials; c.SecretVersion != "7" || !c.Since.Time.Equal(now) || !c.PreviousUntil.Time.Equal(now.Add(time.Minute)) || p.after != time.Minute {
		t.Errorf("%+v, after %s", c, p.after)
	}
	p.now = now.Add(time.Minute)
	p.overlapEnds()
	if c := p.proxy.Status.Credentials; c.PreviousUntil != nil || !c.Since.Time.Equal(now) {
		t.Errorf("%+v", c)
	}
}
