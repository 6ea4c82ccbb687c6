// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const testUID = "3f2b8c1e-9a7d-4e5f-8b6a-0c1d2e3f4a5b"

func testNames(t *testing.T) Names {
	t.Helper()
	n, err := NewNames("0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClusterID(t *testing.T) {
	for id, good := range map[string]bool{
		"abcdef": true, "0123456789ab": true, strings.Repeat("a", 32): true,
		"": false, "abcde": false, strings.Repeat("a", 33): false, "ABCDEF": false, "abc-def": false, "abcdef\n": false, "../../x": false,
	} {
		if _, err := NewNames(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// The names are final: what exists on hosts is found by them.
func TestNamesAreFinal(t *testing.T) {
	n := testNames(t)
	for got, want := range map[string]string{
		n.Domain(testUID):     "egress-0123456789ab-vm-3f2b8c1e9a7d4e5f8b6a0c1d2e3f4a5b",
		n.Overlay(testUID):    "egress-0123456789ab-vm-3f2b8c1e9a7d4e5f8b6a0c1d2e3f4a5b.qcow2",
		n.Seed(testUID):       "egress-0123456789ab-vm-3f2b8c1e9a7d4e5f8b6a0c1d2e3f4a5b.seed.iso",
		n.DomainUUID(testUID): "06a25132-e989-5c81-80f7-80f8e66ff31b",
		n.MAC(testUID):        "e6:7a:94:70:94:88",
		n.Base("kvm2-home", "https://example.org/d.qcow2", "AB").stem: "egress-0123456789ab-base-kvm2-home-6c450b6abd1f4eafd10e0dc9f8e720dd",
		n.Agent("kvm2-home", "x86_64", strings.Repeat("0", 64)).stem:  "egress-0123456789ab-agent-kvm2-home-x86_64-97e37cb5ead89c768ca68dd20a92a896",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestUIDs(t *testing.T) {
	n := testNames(t)
	// Of E2, which is about the collector too.
	t.Run("case, space and dashes make no other Proxy", func(t *testing.T) {
		odd := " \t" + strings.ToUpper(strings.ReplaceAll(testUID, "-", "")) + "\n"
		if !SameUID(odd, testUID) || n.Domain(odd) != n.Domain(testUID) || n.DomainUUID(odd) != n.DomainUUID(testUID) || n.MAC(odd) != n.MAC(testUID) {
			t.Errorf("%q and %q are two", odd, testUID)
		}
	})
	for name, want := range map[string]bool{
		n.Domain(testUID): true, n.Overlay(testUID): true, n.Seed(testUID): true,
		"egress-other00-vm-3f2b8c1e9a7d4e5f8b6a0c1d2e3f4a5b": false, n.Domain(testUID) + "x": false, "egress-0123456789ab-vm-": false,
	} {
		if uid, ok := n.InstanceUID(name); ok != want || (ok && !SameUID(uid, testUID)) {
			t.Errorf("%s: %q, %t", name, uid, ok)
		}
	}
}

func TestX9EveryGuestIsUnique(t *testing.T) {
	t.Run("X9: a MAC of its own, locally administered, unicast, never fe", func(t *testing.T) {
		n := testNames(t)
		seen := map[string]bool{}
		for range 20_000 {
			text := n.MAC(uuid.NewString())
			mac, err := net.ParseMAC(text)
			if err != nil || mac[0]&3 != 2 || mac[0] == 0xfe || mac.String() != text {
				t.Fatalf("MAC %s, %v", text, err)
			}
			if seen[text] {
				t.Fatalf("MAC %s twice", text)
			}
			seen[text] = true
		}
	})
	t.Run("X9: other clusters have other MACs and UUIDs", func(t *testing.T) {
		a := testNames(t)
		b, _ := NewNames("fedcba987654")
		if a.MAC(testUID) == b.MAC(testUID) || a.DomainUUID(testUID) == b.DomainUUID(testUID) {
			t.Error("the same")
		}
	})
}

func testContent() Content {
	return Content{SHA256: strings.Repeat("ab", 32), Size: 123_456, Format: formatQCOW2, VirtualSize: 2 << 30}
}

func TestMarkers(t *testing.T) {
	n := testNames(t)
	t.Run("H4a: a base is named by entry, source and a unique part; its marker adds version, digest and size", func(t *testing.T) {
		s := n.Base("kvm2-home", "https://example.org/d.qcow2", "")
		volume := s.NewVolume()
		if volume == s.NewVolume() || !strings.HasPrefix(volume, "egress-0123456789ab-base-kvm2-home-") {
			t.Errorf("volume %s", volume)
		}
		for _, unpacked := range []bool{false, true} {
			c := testContent()
			c.Unpacked = unpacked
			marker, err := Marker(volume, c)
			if err != nil {
				t.Fatal(err)
			}
			kind := map[bool]string{false: ".served-sha256-", true: ".unpacked-sha256-"}[unpacked]
			for _, part := range []string{volume + ".v1" + kind + c.SHA256, ".size-123456"} {
				if !strings.Contains(marker, part) {
					t.Errorf("%s lacks %s", marker, part)
				}
			}
			if v, got, err := ParseMarker(marker); err != nil || v != volume || got != c {
				t.Errorf("read back: %s, %+v, %v", v, got, err)
			}
		}
	})
	t.Run("H4a: the longest marker fits", func(t *testing.T) {
		long, _ := NewNames(strings.Repeat("c", 32))
		entry := strings.Repeat("e", 30)
		base := Content{SHA256: strings.Repeat("0", 64), Unpacked: true, Size: 9_999_999_999_999_999, Format: formatQCOW2, VirtualSize: 9_999_999_999_999_999}
		if m, err := Marker(long.Base(entry, "u", "").NewVolume(), base); err != nil || len(m) > 255 {
			t.Errorf("base: %d characters, %v", len(m), err)
		}
		agent := Content{SHA256: strings.Repeat("0", 64), Size: 9_999_999_999, Format: formatRaw, VirtualSize: 9_999_999_999}
		if m, err := Marker(long.Agent(entry, archARM, strings.Repeat("0", 64)).NewVolume(), agent); err != nil || len(m) > 255 {
			t.Errorf("agent: %d characters, %v", len(m), err)
		}
	})
	for name, c := range map[string]Content{
		"no digest": {Size: 1, Format: formatRaw, VirtualSize: 1}, "no size": {SHA256: testContent().SHA256, Format: formatRaw, VirtualSize: 1},
		"negative": {SHA256: testContent().SHA256, Size: -1, Format: formatRaw, VirtualSize: 1}, "format": {SHA256: testContent().SHA256, Size: 1, Format: "vmdk", VirtualSize: 1},
	} {
		if m, err := Marker(n.Base("e", "u", "").NewVolume(), c); err == nil {
			t.Errorf("%s: made %s", name, m)
		}
	}
	t.Run("L8: sources have 128-bit digests, and no key or URL makes another's", func(t *testing.T) {
		seen := map[string]bool{}
		for _, src := range []Source{
			n.Base("e", "https://a/x", ""), n.Base("e", "https://a/x", "00"), n.Base("e", "https://a/x\n00", ""), n.Base("e", "x", ""),
			n.Base("e-x", "https://a/x", ""), n.Agent("e", archX86, strings.Repeat("0", 64)), n.Agent("e", archARM, strings.Repeat("0", 64)),
		} {
			if seen[src.stem] {
				t.Errorf("%s twice", src.stem)
			}
			seen[src.stem] = true
			digest := src.stem[strings.LastIndex(src.stem, "-")+1:]
			if len(digest)*4 < 128 {
				t.Errorf("%s has a digest of %d bits", src.stem, len(digest)*4)
			}
		}
	})
}

func TestFindPublished(t *testing.T) {
	n := testNames(t)
	s := n.Base("home", "https://example.org/d.qcow2", "")
	low, high := s.stem+"-000000000001.img", s.stem+"-000000000002.img"
	other := n.Base("home-2", "https://example.org/d.qcow2", "").NewVolume()
	marker := func(volume string) string {
		m, err := Marker(volume, testContent())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		volumes []string
		want    string
		err     bool
		newer   bool
	}{
		{name: "a volume without a marker is not there for anybody", volumes: []string{low, high}},
		{name: "of two published at once the lowest name is used", volumes: []string{high, marker(high), low, marker(low)}, want: low},
		{name: "a marker without its volume", volumes: []string{marker(low), high, marker(high)}, want: high},
		{name: "another entry's base is not ours", volumes: []string{other, marker(other)}},
		{name: "a marker that cannot be read is an error, not an absence", volumes: []string{low, low + ".v1.served-sha256-xyz.size-1"}, err: true},
		{name: "a marker without a version", volumes: []string{low, low + ".vx"}, err: true},
		{name: "a stray name", volumes: []string{low, marker(low), s.stem + "-000000000003.img.tmp"}, err: true},
		{name: "a newer marker is left alone, and said", volumes: []string{low, low + ".v2.blake3-00"}, err: true, newer: true},
		{name: "somebody else's volumes", volumes: []string{"debian.qcow2", "egress-otherone-base-home-x.img.v9"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, ok, err := FindPublished(c.volumes, s)
			if (err != nil) != c.err || errors.Is(err, ErrNewer) != c.newer || ok != (c.want != "") || p.Volume != c.want {
				t.Errorf("got %+v, %t, %v", p, ok, err)
			}
		})
	}
}

func FuzzParseMarker(f *testing.F) {
	n, err := NewNames("0123456789ab")
	if err != nil {
		f.Fatal(err)
	}
	volume := n.Base("home", "u", "").NewVolume()
	m, err := Marker(volume, testContent())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{m, volume, volume + ".v2.x", "", ".img.v", m + "0", strings.Replace(m, "size-", "size-0", 1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		volume, c, err := ParseMarker(name)
		if err != nil {
			return
		}
		again, err := Marker(volume, c)
		if len(name) <= maxVolumeName && (err != nil || again != name) {
			t.Errorf("%q is read as %q, %+v, and written as %q, %v", name, volume, c, again, err)
		}
	})
}
