// SPDX-License-Identifier: Apache-2.0

package providersfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

func TestEnsure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "providers.yaml")
	if err := Ensure(path); err != nil {
		t.Fatal(err)
	}
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	entry, ok := file.Entry("local")
	if !ok || entry.Type != config.TypeLocal || len(entry.Hosts) == 0 {
		t.Errorf("entry local: %+v", entry)
	}
	if !Unchanged(path) {
		t.Error("what was written counts as changed")
	}

	if err := os.WriteFile(path, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(path); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "version: 1\n" {
		t.Errorf("a user's file became %q (%v)", content, err)
	}
	if Unchanged(path) {
		t.Error("a user's file counts as unchanged")
	}
}
