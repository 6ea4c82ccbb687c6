// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	some256, other256 = strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	some512           = strings.Repeat("ef", 64)
)

func TestParseChecksums(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []Checksum
	}{
		"GNU":       {some256 + "  debian.qcow2\n" + other256 + " *b.img\n", []Checksum{{"debian.qcow2", "sha256", some256}, {"b.img", "sha256", other256}}},
		"GNU, 512":  {some512 + "  a b.img", []Checksum{{"a b.img", "sha512", some512}}},
		"BSD":       {"SHA256 (a.img) = " + strings.ToUpper(some256) + "\r\nSHA512 (b (1).img) = " + some512, []Checksum{{"a.img", "sha256", some256}, {"b (1).img", "sha512", some512}}},
		"OpenSSL":   {"SHA2-256(a.img)= " + some256, []Checksum{{"a.img", "sha256", some256}}},
		"escaped":   {`\` + some256 + `  a\\b\n.img`, []Checksum{{"a\\b\n.img", "sha256", some256}}},
		"signed":    {"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# a.img: 5 bytes\nSHA256 (a.img) = " + some256 + "\n-----BEGIN PGP SIGNATURE-----\n\niQIz\n", []Checksum{{"a.img", "sha256", some256}}},
		"digest":    {some512 + "\n", []Checksum{{"", "sha512", some512}}},
		"others":    {"d41d8cd98f00b204e9800998ecf8427e  a.img\nMD5 (a.img) = d41d8cd98f00b204e9800998ecf8427e\n", nil},
		"wrong tag": {"SHA512 (a.img) = " + some256, nil},
		"no name":   {some256 + "  \n" + some256 + "\n", nil},
		"nothing":   {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ParseChecksums([]byte(test.text))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFindChecksum(t *testing.T) {
	for name, test := range map[string]struct {
		list string
		want pin
		says string
	}{
		"by name":        {other256 + "  b.img\n" + some256 + "  a.img\n", pin{algorithm: algSHA256, digest: some256}, ""},
		"by path":        {some256 + "  ./13/a.img\n" + other256 + "  ./12/a.img\n", pin{algorithm: algSHA256, digest: some256}, ""},
		"the longest":    {some256 + "  a.img\n" + some512 + "  a.img\n", pin{algorithm: algSHA512, digest: some512}, ""},
		"said twice":     {some256 + "  a.img\n" + some256 + "  13/a.img\n", pin{algorithm: algSHA256, digest: some256}, ""},
		"contradictory":  {some256 + "  a.img\n" + other256 + "  a.img\n", pin{}, "more than one sha256 for a.img"},
		"not in it":      {some256 + "  aa.img\n" + some256 + "  a.img.xz\n", pin{}, "no sha256 or sha512 for a.img"},
		"weaker ones":    {"d41d8cd98f00b204e9800998ecf8427e  a.img\n", pin{}, "no sha256 or sha512 for a.img"},
		"a digest alone": {some256, pin{algorithm: algSHA256, digest: some256}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := findChecksum(ParseChecksums([]byte(test.list)), "/debian/13/a.img")
			if got != test.want || test.says == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// lists is a server over TLS with an image, and a list that holds line.
func lists(t *testing.T, line string) (*Opener, string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/a.img", whole)
	mux.HandleFunc("/SUMS", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, line) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/SUMS", http.StatusFound)
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	return &Opener{TLS: server.Client().Transport.(*http.Transport).TLSClientConfig}, server.URL
}

func TestChecksumsDecide(t *testing.T) {
	o, url := lists(t, digestOf(disk)+"  a.img")
	source := Source{URL: url + "/a.img", Checksums: url + "/SUMS"}
	sink := &memory{}
	if _, err := direct.Fetch(t.Context(), o, source, sink, nil); err != nil {
		t.Error(err)
	}
	sink.wrote(t, "write", "publish")
	for name, test := range map[string]struct {
		line, list string
		kind       Kind
		says       string
	}{
		"another digest":                         {some256 + "  a.img", "/SUMS", Permanent, "expected sha256 " + some256},
		"not in the list":                        {some256 + "  b.img", "/SUMS", Permanent, "no sha256 or sha512 for a.img"},
		"no list":                                {"", "/none", Permanent, "404"},
		"M17: a list that is redirected to http": {"", "/moved", Permanent, "http without a digest"},
	} {
		t.Run(name, func(t *testing.T) {
			o, url := lists(t, test.line)
			sink := &memory{}
			_, err := direct.Fetch(t.Context(), o, Source{URL: url + "/a.img", Checksums: url + test.list}, sink, nil)
			wantError(t, err, test.kind, test.says)
			if sink.published != nil {
				t.Error("published")
			}
		})
	}
	t.Run("M17: a list that is served over http", func(t *testing.T) {
		wantError(t, Source{URL: "http://a/a.img", Checksums: "http://a/SUMS"}.Validate(), Permanent, "http without a digest")
	})
	t.Run("two pins", func(t *testing.T) {
		wantError(t, Source{URL: "https://a/a.img", Checksums: "https://a/SUMS", SHA512: some512}.Validate(), Permanent, "more than one")
	})
}

func TestPinsTellSourcesApart(t *testing.T) {
	url := "https://example.org/a.xz"
	seen := map[string]Source{}
	for _, s := range []Source{
		{URL: url}, {URL: url, SHA256: some256}, {URL: url, SHA256: some256, Unpacked: true}, {URL: url, SHA512: some512},
		{URL: url, Checksums: "https://example.org/A"}, {URL: url, Checksums: "https://example.org/a"},
	} {
		pin := strings.ToLower(s.Pin())
		if other, ok := seen[pin]; ok {
			t.Errorf("%+v and %+v have one pin", s, other)
		}
		seen[pin] = s
	}
	if pin := (Source{URL: url, SHA256: strings.ToUpper(some256)}).Pin(); pin != some256 {
		t.Errorf("the pin of a sha256 is %s: bases that exist would be fetched anew", pin)
	}
}

// FuzzChecksums: whatever the list, each line that is taken has a digest of its algorithm, and looking for a file ends with one of them or an error.
func FuzzChecksums(f *testing.F) {
	for _, seed := range []string{
		some256 + "  a.img\n", "SHA512 (a.img) = " + some512, `\` + some256 + `  a\\n\n`, some256, "SHA2-256(a)= " + some256,
		"-----BEGIN PGP SIGNED MESSAGE-----\n", some256 + " *../../a.img\r\n", some256 + "  /a.img\n" + other256 + "  a.img\n", "SHA256 () = ",
	} {
		f.Add([]byte(seed), "/a.img")
	}
	f.Fuzz(func(t *testing.T, data []byte, file string) {
		all := ParseChecksums(data)
		known := map[string]bool{}
		for _, c := range all {
			if a, ok := algorithmOf(c.Digest); !ok || string(a) != c.Algorithm || c.Digest != strings.ToLower(c.Digest) {
				t.Fatalf("took %+v", c)
			}
			known[c.Digest] = true
		}
		found, err := findChecksum(all, file)
		if (err == nil) != known[found.digest] {
			t.Fatalf("found %+v, %v", found, err)
		}
	})
}
