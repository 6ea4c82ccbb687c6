// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
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
