// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"encoding/xml"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func testMark() Mark {
	return Mark{
		Cluster: "0123456789ab", Entry: "kvm2-home", UID: testUID, Namespace: "team-a", Name: "exit-1",
		Created: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Retained: true, Volumes: []string{"o.qcow2", "s.iso", "b.img"}, AgentVersion: "1.2.3", Pool: "default",
		Shape: provider.Shape{
			Image: provider.Image{URL: "https://example.org/a", SHA256: strings.Repeat("a", 64)}, VCPUs: 2, MemoryMiB: 512, DiskSizeGiB: 4,
			Software: provider.SoftwareCloudInit, Port: 3128, UserDataSHA256: strings.Repeat("b", 64),
			EntryDataSHA256: strings.Repeat("c", 64), DestinationsSHA256: strings.Repeat("d", 64),
		},
		NIC: provider.NIC{
			MAC: "52:54:00:12:34:56", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
			Gateways:    []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")},
			Nameservers: []netip.Addr{netip.MustParseAddr("198.51.100.53")},
		},
	}
}

func TestMarkIsReadAsWritten(t *testing.T) {
	m := testMark()
	for name, encode := range map[string]func() (string, error){"in a definition": m.Element, "by itself": m.Bare} {
		text, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeMark(text)
		if diff := cmp.Diff(m, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if strings.Contains(text, MarkNamespace) != (name == "in a definition") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestMarkHoldsNoToken(t *testing.T) {
	m := testMark()
	m.Shape.Image.URL += "?X-Amz-Signature=s3cret"
	text, err := m.Element()
	if err != nil || strings.Contains(text, "s3cret") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestDecodeMark(t *testing.T) {
	for _, c := range []struct {
		name, text string
		newer      bool
	}{
		{name: "nothing"},
		{name: "no XML", text: "<instance"},
		{name: "another element", text: `<domain version="1" cluster="c" entry="e" uid="` + testUID + `"/>`},
		{name: "no version", text: `<instance cluster="c" entry="e" uid="` + testUID + `"/>`},
		{name: "version zero", text: `<instance version="0" cluster="c" entry="e" uid="` + testUID + `"/>`},
		{name: "no cluster", text: `<instance version="1" entry="e" uid="` + testUID + `"/>`},
		{name: "no UID", text: `<instance version="1" cluster="c" entry="e"/>`},
		{name: "a UID that is none", text: `<instance version="1" cluster="c" entry="e" uid="x"/>`},
		{name: "two elements", text: `<instance version="1" cluster="c" entry="e" uid="` + testUID + `"/><x/>`},
		{name: "a newer mark is told apart from a broken one", text: `<instance version="2"><all different="x"/></instance>`, newer: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := DecodeMark(c.text); err == nil || errors.Is(err, ErrNewer) != c.newer {
				t.Errorf("got %v", err)
			}
		})
	}
	odd := ` <instance version="1" cluster="c" entry="e" uid=" ` + strings.ToUpper(testUID) + ` " created="yesterday" future="x"><shape/></instance>`
	// Of E2, which is about the collector too.
	t.Run("UIDs are read in canonical form, and a time that cannot be read decides nothing", func(t *testing.T) {
		if m, err := DecodeMark(strings.TrimSpace(odd)); err != nil || !m.Owned("c", "e", testUID) || !m.Created.IsZero() {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}

// FuzzMark proves X21 (the mark's XML): whatever the names, a definition stays well-formed, carries one mark, and nothing of them gets out of it.
func FuzzMark(f *testing.F) {
	for _, s := range []string{"plain", `"><x xmlns="y"/>`, "]]>", "<!--", "&amp;&#0;", "\x00\x01\xff", "a\nb\tc\r", "</instance></metadata></domain>", "\ufffe"} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, namespace, name, image string) {
		m := testMark()
		m.Namespace, m.Name, m.Shape.Image.Name, m.Volumes = namespace, name, image, []string{name, image}
		checkMark(t, m)
	})
}

func TestMarkWithHostileNames(t *testing.T) {
	t.Run("X21: hostile names stay inside the mark", func(t *testing.T) {
		for _, s := range []string{`"><x xmlns="y"/>`, "]]>", "<!--", "&amp;&#0;", "\x00\x01\xff", "a\nb", "</instance></metadata></domain>"} {
			m := testMark()
			m.Namespace, m.Name, m.Entry, m.Volumes = s, s, s, []string{s, s}
			checkMark(t, m)
		}
	})
}

func checkMark(t *testing.T, m Mark) {
	t.Helper()
	element, err := m.Element()
	if err != nil {
		t.Fatal(err)
	}
	text, err := definition(domainSpec{Name: "n", Guest: Guest{VirtType: virtKVM, Arch: archX86, Machine: "q35"}, VCPUs: 1, MemoryMiB: 64, Mark: element, Title: m.Namespace + "/" + m.Name})
	if err != nil {
		t.Fatal(err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil || d.Name != "n" || d.Type != virtKVM {
		t.Fatalf("the definition broke: %v\n%s", err, text)
	}
	if strings.ContainsAny(d.Title, "\n\r") {
		t.Errorf("title %q", d.Title)
	}
	inside := d.Metadata.XML
	decoder := xml.NewDecoder(strings.NewReader(inside))
	depth, roots := 0, 0
	for token, err := decoder.Token(); token != nil || err == nil; token, err = decoder.Token() {
		if err != nil {
			t.Fatalf("the metadata broke: %v\n%s", err, inside)
		}
		switch token.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
	got, err := DecodeMark(inside)
	if err != nil || roots != 1 || got.UID != m.UID || len(got.Volumes) != len(m.Volumes) {
		t.Errorf("%d elements, mark %+v, %v", roots, got, err)
	}
	if got.Name != clean(m.Name) || got.Namespace != clean(m.Namespace) {
		t.Errorf("names %q and %q, want %q and %q", got.Namespace, got.Name, clean(m.Namespace), clean(m.Name))
	}
}

// clean is a text with what XML cannot hold replaced, as encoding/xml does.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		valid := r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 && r <= 0x10ffff
		if !valid {
			r = '\ufffd'
		}
		b.WriteRune(r)
	}
	return b.String()
}
