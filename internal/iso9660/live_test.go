// SPDX-License-Identifier: Apache-2.0

//go:build live

package iso9660

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRealTools needs root, util-linux and xorriso, and fails where one is missing.
func TestRealTools(t *testing.T) {
	for _, label := range []string{"cidata", "EGRESS_AGENT"} {
		t.Run(label, func(t *testing.T) {
			volume, err := Write(label, seedFiles)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "volume.iso")
			if err := os.WriteFile(path, volume, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(run(t, "blkid", "-p", "-s", "LABEL", "-o", "value", path)); got != label {
				t.Errorf("blkid shows label %q, want %q", got, label)
			}
			t.Run("xorriso extracts it whole", func(t *testing.T) {
				at := filepath.Join(t.TempDir(), "out")
				run(t, "xorriso", "-abort_on", "WARNING", "-report_about", "NOTE", "-osirrox", "on", "-indev", "stdio:"+path, "-extract", "/", at)
				defer run(t, "chmod", "-R", "u+w", at) // the directory is read-only, as in the volume
				if diff := cmp.Diff(wantListing(), listing(t, at)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func wantListing() map[string]string {
	want := map[string]string{}
	for _, f := range seedFiles {
		want[f.Name] = fmt.Sprintf("%v %s", f.Mode, f.Data)
	}
	return want
}

// listing holds names, modes and content as the file system shows them.
func listing(t *testing.T, at string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(at, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = fmt.Sprintf("%v %s", info.Mode(), data)
	}
	return got
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
