// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzParse: whatever the bytes, Parse returns a file that holds what the types promise, or Errors; it never panics.
func FuzzParse(f *testing.F) {
	sample, err := os.ReadFile("../../config/samples/providers.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	for _, seed := range []string{
		minimal, "", "null", "[]", "{}", "- - - -", "---\n---\n", "version: 1\nreflectors: &r [*r]\n", "? [a, b]\n: c\n", "? *x\n",
		"entries: [{hosts: [{}], images: {a: {}}, credentials: {}}]", "version: !!int x\n", "<<: {version: 1}\n", "&a version: *a\n",
		"version: !!binary aGk=\n", "entries: [{images: {? {a: b} : c}}]", "%YAML 1.1\n---\nversion: 1\n", "\xff\xfev\x00", "a: |\n  b\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data, "providers.yaml")
		if err != nil {
			var errs Errors
			if file != nil || !errors.As(err, &errs) || len(errs) == 0 || len(errs) > maxErrors+1 || err.Error() == "" {
				t.Fatalf("Parse gave %v, %#v", file, err)
			}
			return
		}
		checkPromises(t, file)
	})
}

// FuzzSizes writes one text as each number of a file.
func FuzzSizes(f *testing.F) {
	for _, seed := range []string{"0", "-1", "1", "64", "65", "9223372036854775807", "-9223372036854775808", "18446744073709551617", "1e3", "0x10", "1_0", ".inf"} {
		f.Add(seed)
	}
	keys := []string{"    defaults:\n      vcpus: ", "    defaults:\n      memoryMiB: ", "    defaults:\n      diskSizeGb: ", "    poolReserveGiB: ", "    maxImageBytes: ", "imageSpoolGiB: "}
	f.Fuzz(func(t *testing.T, number string) {
		for _, key := range keys {
			if file, err := Parse([]byte(minimal+key+number+"\n"), "providers.yaml"); err == nil {
				checkPromises(t, file)
			}
		}
	})
}

// FuzzUserinfo hides a password in a URL between any two texts.
func FuzzUserinfo(f *testing.F) {
	f.Add("user:", "")
	f.Add("user:12/", "?")
	f.Add("user:12#", "%zz")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "HUNTER2hunter2"
		raw := "https://" + before + secret + after + "@example.org/a"
		if got := RedactURL(raw); strings.Contains(got, secret) {
			t.Fatalf("RedactURL(%q) = %q", raw, got)
		}
		quoted, err := yaml.Marshal(raw)
		if err != nil || strings.Contains(string(quoted), "\n ") {
			return
		}
		_, err = Parse([]byte(strings.Replace(minimal, "https://example.org/debian.qcow2", strings.TrimSpace(string(quoted)), 1)), "x")
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Fatalf("%q: error is %v", raw, err)
		}
	})
}

// checkPromises fails where a file that Parse accepted breaks a promise of its types.
func checkPromises(t *testing.T, f *File) {
	t.Helper()
	if f.ImageSpoolGiB == nil || *f.ImageSpoolGiB<<30 < 0 {
		t.Fatalf("accepted a spool of %v GiB", f.ImageSpoolGiB)
	}
	if f.Version != Version || len(f.Reflectors) == 0 || f.Probe.Timeout > f.Probe.Interval || f.Probe.Timeout <= 0 {
		t.Fatalf("accepted %+v", f)
	}
	for _, e := range f.Entries {
		s := e.Defaults
		if s.VCPUs < 1 || s.VCPUs > 64 || s.MemoryMiB < 64 || s.MemoryMiB > 262144 || s.DiskSizeGb < 1 || s.DiskSizeGb > 4096 {
			t.Fatalf("accepted %+v", s)
		}
		if e.PoolReserveGiB == nil || *e.PoolReserveGiB < 0 || *e.PoolReserveGiB<<30 < 0 || e.MaxImageBytes < 1 || e.MaxImageBytes*2 < 0 {
			t.Fatalf("accepted a reserve of %v GiB, images of %d bytes", e.PoolReserveGiB, e.MaxImageBytes)
		}
		if len(e.Hosts) == 0 || len(e.Images) > 0 && e.Images[e.DefaultImage].URL == "" {
			t.Fatalf("accepted %+v", e)
		}
		for _, h := range e.Hosts {
			if _, _, err := net.SplitHostPort(h.DialAddress()); err != nil || (h.Bridge == "") == (h.Network == "") || h.Schedulable == nil {
				t.Fatalf("accepted %+v: %v", h, err)
			}
		}
		for key, image := range e.Images {
			if strings.HasPrefix(strings.ToLower(image.URL), "http:") && len(image.SHA256) != 64 && len(image.SHA512) != 128 && image.Checksums == "" || strings.Contains(image.URL, "@") {
				t.Fatalf("accepted image %q: %+v", key, image)
			}
		}
	}
}
