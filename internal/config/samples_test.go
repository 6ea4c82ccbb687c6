// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSamplesAreUsable(t *testing.T) {
	files, err := filepath.Glob("../../config/samples/providers*.yaml")
	if err != nil || len(files) < len(Types()) {
		t.Fatalf("samples are %q (%v): every type of provider has one", files, err)
	}
	var types []string
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range f.Entries {
				types = append(types, e.Type)
			}
		})
	}
	for _, wanted := range Types() {
		if !slices.Contains(types, wanted) {
			t.Errorf("no sample has an entry of type %s", wanted)
		}
	}
}

// The examples of the page on images are parts of an entry.
func TestThePageOnImagesIsUsable(t *testing.T) {
	page, err := os.ReadFile("../../docs/images.md")
	if err != nil {
		t.Fatal(err)
	}
	entry, _, found := strings.Cut(minimal, "    images:\n")
	if !found {
		t.Fatal("the smallest file has no images any more")
	}
	var keys []string
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		keys = append(keys, strings.TrimSpace(strings.SplitN(block[1], ":", 2)[0]))
		entry += block[1]
	}
	f := parse(t, entry)
	if e := f.Entries[0]; !slices.Equal(keys, []string{"images", "mirrors", "prePull"}) || len(e.Images) != 3 || len(e.Mirrors) != 3 || len(e.PrePull) != 1 {
		t.Errorf("the page's examples of %q give %+v", keys, e)
	}
}

// The examples of the page on guests are parts of an entry too, but that of a Proxy's spec.
func TestThePageOnGuestsIsUsable(t *testing.T) {
	page, err := os.ReadFile("../../docs/guests.md")
	if err != nil {
		t.Fatal(err)
	}
	text := minimal
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(    .*?)^```").FindAllStringSubmatch(string(page), -1) {
		text += strings.ReplaceAll(block[1], "rack1", "a")
	}
	e := parse(t, text).Entries[0]
	if len(e.AddressPools) != 1 || len(e.Slots("a")) != 27 || e.VendorDataFile == "" || e.UserData == "" || !e.InstallGuestAgent || len(e.AllowUserData) != 1 {
		t.Errorf("%+v", e)
	}
}
