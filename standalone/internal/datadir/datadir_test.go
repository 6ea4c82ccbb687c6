// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode %o, want 700", got)
	}

	_, err = Open(path)
	if want := fmt.Sprintf("%s is in use by another egress-standalone (process %d)", path, os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("second Open: error %v, want %q in it", err, want)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenNeedsAPath(t *testing.T) {
	if _, err := Open(""); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("error %v, want one that names --data-dir", err)
	}
}
