// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

func mustPolicy(t *testing.T, rules Rules) *Policy {
	t.Helper()
	policy, err := NewPolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func TestCheckDefault(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("2606:2800::14")}
	policy := mustPolicy(t, Rules{})
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
		"192.167.255.255", "192.169.0.0", "223.255.255.255", "169.253.255.255", "169.255.0.0",
		"2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101", "2002:101:101::1", "2001:200::1", "2400::", "::ffff:1.1.1.1",
	} {
		if err := policy.Check(netip.MustParseAddr(addr), own); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "169.254.0.1", "169.254.169.254",
		"168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::2", "::7f00:1", "fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1",
		"2001:db8::1", "3fff::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "100::1", "4000::1", "5f00::1", "64:ff9b:1::1", "2606::1%eth0",
		// IPv4 in other clothes
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1",
		"2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::1", "2606::5efe:10.0.0.1", "2606::200:5efe:7f00:1",
		// our own
		"93.184.215.14", "::ffff:93.184.215.14", "64:ff9b::93.184.215.14", "2606:2800::14",
	} {
		err := policy.Check(netip.MustParseAddr(addr), own)
		var refusal *RefusedError
		if !errors.As(err, &refusal) || refusal.Why == "" || proxyproto.FailureOf(err) != proxyproto.FailurePolicy {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if policy.Check(netip.Addr{}, nil) == nil {
		t.Error("no address is allowed")
	}
}

func TestCheckRules(t *testing.T) {
	policy := mustPolicy(t, Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16"), netip.MustParsePrefix("fd12::/16"), netip.MustParsePrefix("127.0.0.8/32"), netip.MustParsePrefix("::ffff:192.168.7.0/120")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("10.1.9.0/24"), netip.MustParsePrefix("1.1.1.0/24")},
	})
	for addr, allowed := range map[string]bool{
		"10.1.0.1": true, "10.1.255.255": true, "10.2.0.1": false, "::ffff:10.1.0.1": true, "64:ff9b::10.1.0.1": true,
		"10.1.9.1": false, "::ffff:10.1.9.1": false, "64:ff9b::10.1.9.1": false, "1.1.1.1": false, "64:ff9b::1.1.1.1": false, "2002:101:101::1": false, "1.1.2.1": true,
		"fd12::1": true, "fd13::1": false, "127.0.0.8": true, "127.0.0.1": false, "192.168.7.9": true, "192.168.8.9": false,
	} {
		if err := policy.Check(netip.MustParseAddr(addr), nil); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %t", addr, err, allowed)
		}
	}
	own := netip.MustParseAddr("10.1.0.1")
	if err := policy.Check(own, []netip.Addr{own}); err != nil {
		t.Errorf("an own address that is in allow: %v", err)
	}
}

func TestReflectors(t *testing.T) {
	policy := mustPolicy(t, Rules{Reflectors: []string{"Reflector.example.:8080", "192.168.1.1:9000", "[fd00::1]:9000"}})
	for target, want := range map[string]bool{
		"reflector.example:8080": true, "REFLECTOR.EXAMPLE:8080": true, "reflector.example.:8080": true,
		"reflector.example:8081": false, "x.reflector.example:8080": false, "reflector.example:08080": true,
		"192.168.1.1:9000": true, "[::ffff:192.168.1.1]:9000": true, "192.168.1.1:9001": false, "192.168.1.2:9000": false,
		"[fd00:0::1]:9000": true, "[fd00::2]:9000": false, "nonsense": false, "": false,
	} {
		if got := policy.IsReflector(target); got != want {
			t.Errorf("%s: %t, want %t", target, got, want)
		}
	}
}

func TestNewPolicyRefuses(t *testing.T) {
	for _, rules := range []Rules{
		{Allow: []netip.Prefix{{}}}, {Deny: []netip.Prefix{{}}}, {Reflectors: []string{"host-only"}}, {Reflectors: []string{"host:0"}}, {Reflectors: []string{"http://host:80/"}},
	} {
		if _, err := NewPolicy(rules); err == nil {
			t.Errorf("%+v is accepted", rules)
		}
	}
}

// isPublic4 is another way to say what is public, by the first octets.
func isPublic4(a [4]byte) bool {
	switch {
	case a[0] == 0, a[0] == 10, a[0] == 127, a[0] >= 224:
		return false
	case a[0] == 100 && a[1] >= 64 && a[1] < 128, a[0] == 169 && a[1] == 254, a[0] == 172 && a[1] >= 16 && a[1] < 32:
		return false
	case a[0] == 192 && a[1] == 168, a[0] == 192 && a[1] == 0 && (a[2] == 0 || a[2] == 2), a[0] == 192 && a[1] == 88 && a[2] == 99:
		return false
	case a[0] == 198 && (a[1] == 18 || a[1] == 19), a[0] == 198 && a[1] == 51 && a[2] == 100, a[0] == 203 && a[1] == 0 && a[2] == 113:
		return false
	case a == [4]byte{168, 63, 129, 16}:
		return false
	}
	return true
}

// All ways to write an IPv4 address get the same answer, whatever the rules.
func TestEveryFormOfAnIPv4AddressGetsOneAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 30_000 {
		var a [4]byte
		for i := range a {
			// Half of the octets from where the borders are.
			a[i] = byte(random.Uint32())
			if random.IntN(2) == 0 {
				edges := []byte{0, 1, 2, 10, 16, 18, 31, 51, 63, 64, 88, 99, 100, 113, 127, 128, 129, 168, 169, 172, 192, 198, 203, 224, 240, 254, 255}
				a[i] = edges[random.IntN(len(edges))]
			}
		}
		addr := netip.AddrFrom4(a)
		rules, own := Rules{}, []netip.Addr(nil)
		want := isPublic4(a)
		switch random.IntN(8) {
		case 0:
			rules.Allow = []netip.Prefix{netip.PrefixFrom(addr, 8+random.IntN(25))}
			want = true
		case 1:
			rules.Deny = []netip.Prefix{netip.PrefixFrom(addr, 8+random.IntN(25))}
			want = false
		case 2:
			own, want = []netip.Addr{addr}, false
		}
		policy := mustPolicy(t, rules)
		for _, form := range forms(a) {
			if err := policy.Check(form, own); (err == nil) != want {
				t.Fatalf("%s for %s, rules %+v, own %v: %v, want allowed %t", form, addr, rules, own, err, want)
			}
		}
	}
}

func forms(a [4]byte) []netip.Addr {
	mapped := netip.AddrFrom4(a).As16()
	translated := netip.MustParseAddr("64:ff9b::").As16()
	copy(translated[12:], a[:])
	relayed := [16]byte{0x20, 0x02, a[0], a[1], a[2], a[3], 15: 1}
	tunnelled := netip.MustParseAddr("2606::5efe:0:0").As16()
	copy(tunnelled[12:], a[:])
	return []netip.Addr{netip.AddrFrom4(a), netip.AddrFrom16(mapped), netip.AddrFrom16(translated), netip.AddrFrom16(relayed), netip.AddrFrom16(tunnelled)}
}

// In IPv6 nothing outside what is allocated is ever allowed by default.
func TestIPv6OutsideGlobalUnicastIsRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	policy := mustPolicy(t, Rules{})
	for range 50_000 {
		var b [16]byte
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		addr := netip.AddrFrom16(b)
		if b[0]>>5 != 1 && policy.Check(addr, nil) == nil {
			t.Fatalf("%s is allowed", addr)
		}
	}
}
