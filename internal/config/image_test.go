// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigests(t *testing.T) {
	const url = "        url: https://example.org/debian.qcow2\n"
	short, long := strings.Repeat("Ab", 32), strings.Repeat("Cd", 64)
	for _, tt := range []struct{ name, lines, path, want string }{
		{"short sha512", "sha512: " + short, "sha512", "the 128 hexadecimal digits that sha512sum prints"},
		{"two digests", "sha256: " + short + "\nsha512: " + long, "sha512", "stands beside sha256"},
		{"digest and list", "sha512: " + long + "\nchecksums: https://example.org/SHA512SUMS", "checksums", "stands beside sha512"},
		{"M17: a list that is served over http", "checksums: http://example.org/SHA256SUMS", "checksums", "https:// or file://"},
		{"L24: userinfo in the list's URL", "checksums: https://bob:hunter2@example.org/SHA256SUMS", "checksums", "without user or password"},
		{"digest of nothing", "digestOf: unpacked", "digestOf", "stands without a digest"},
		{"digest of another thing", "sha256: " + short + "\ndigestOf: packed", "digestOf", "must be served or unpacked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines := "        " + strings.ReplaceAll(tt.lines, "\n", "\n        ") + "\n"
			refusedOnce(t, with(t, url, url+lines), "entries[0].images.debian."+tt.path, tt.want)
		})
	}
	for name, tt := range map[string]struct {
		lines string
		want  Image
	}{
		"sha512, http":          {"sha512: " + long, Image{SHA512: strings.ToLower(long), DigestOf: "served"}},
		"list, http":            {"checksums: https://example.org/SHA256SUMS", Image{Checksums: "https://example.org/SHA256SUMS", DigestOf: "served"}},
		"of what it unpacks to": {"sha256: " + short + "\n        digestOf: unpacked", Image{SHA256: strings.ToLower(short), DigestOf: "unpacked"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.URL, tt.want.Arch, tt.want.Firmware = "http://example.org/a.xz", "x86_64", "bios"
			f := parse(t, with(t, url, "        url: http://example.org/a.xz\n        "+tt.lines+"\n"))
			if diff := cmp.Diff(tt.want, f.Entries[0].Images["debian"]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMirrors(t *testing.T) {
	for _, tt := range []struct{ name, mirrors, path, want string }{
		{"no host", "[{caFile: /ca.pem}]", "[0].host", "is missing"},
		{"scheme", "[{host: 'https://example.org', caFile: /ca.pem}]", "[0].host", "without scheme"},
		{"path", "[{host: example.org/images, caFile: /ca.pem}]", "[0].host", "without scheme and path"},
		{"user", "[{host: bob@example.org, caFile: /ca.pem}]", "[0].host", "without scheme"},
		{"port", "[{host: 'example.org:0', caFile: /ca.pem}]", "[0].host", "without scheme"},
		{"all hosts", "[{host: '*', bearerTokenFile: /token}]", "[0].host", "without scheme"},
		{"twice", "[{host: example.org, caFile: /a}, {host: Example.org., caFile: /b}]", "[1].host", "is the same as"},
		{"nothing said", "[{host: example.org}]", "[0]", "says nothing"},
		{"two credentials", "[{host: example.org, basicAuthFile: /a, bearerTokenFile: /b}]", "[0].bearerTokenFile", "keep one of them"},
		{"tilde", "[{host: example.org, caFile: ~/ca.pem}]", "[0].caFile", "~ is not expanded"},
		{"proxy of another kind", "[{host: example.org, proxy: 'socks5://10.0.0.1:1080'}]", "[0].proxy", "http:// or https://"},
		{"proxy with a path", "[{host: example.org, proxy: 'http://10.0.0.1:3128/x'}]", "[0].proxy", "without a path"},
		{"L24: userinfo in the proxy's URL", "[{host: example.org, proxy: 'http://bob:hunter2@10.0.0.1:3128'}]", "[0].proxy", "without user or password"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refusedOnce(t, minimal+"    mirrors: "+tt.mirrors+"\n", "entries[0].mirrors"+tt.path, tt.want)
		})
	}
	f := parse(t, minimal+`    mirrors:
      - {host: "Mirror.example.org:8443", caFile: ca.pem, bearerTokenFile: /run/token, proxy: "http://10.0.0.1:3128"}
      - {host: "[2001:DB8::1]:443", basicAuthFile: /run/basic}
`)
	want := []Mirror{
		{Host: "mirror.example.org:8443", CAFile: "/etc/egress/ca.pem", BearerTokenFile: "/run/token", Proxy: "http://10.0.0.1:3128"},
		{Host: "[2001:db8::1]:443", BasicAuthFile: "/run/basic"},
	}
	if diff := cmp.Diff(want, f.Entries[0].Mirrors); diff != "" {
		t.Error(diff)
	}
}

func TestImageSpool(t *testing.T) {
	if got := parse(t, minimal+"imageSpoolGiB: 0\n").SpoolGiB(); got != 0 {
		t.Errorf("an image spool of %d GiB", got)
	}
	refusedOnce(t, minimal+"imageSpoolGiB: -1\n", "imageSpoolGiB", "must be 0 to")
}

func TestPrePull(t *testing.T) {
	if got := parse(t, minimal+"    prePull: [debian]\n").Entries[0].PrePull; !cmp.Equal(got, []string{"debian"}) {
		t.Errorf("pre-pulls %q", got)
	}
	refusedOnce(t, minimal+"    prePull: [debain]\n", "entries[0].prePull[0]", `did you mean "debian"?`)
	refusedOnce(t, minimal+"    prePull: [debian, debian]\n", "entries[0].prePull[1]", "is the same as")
}
