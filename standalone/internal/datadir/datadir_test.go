// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const program = "egress-standalone v1.0.0"

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	first := mustOpen(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode %o, want 700", got)
	}

	_, err = Open(path, program)
	if want := fmt.Sprintf("%s is in use by another egress-standalone (process %d)", path, os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("second Open: error %v, want %q in it", err, want)
	}
	if pid, held, err := first.Holder(); pid != os.Getpid() || !held || err != nil {
		t.Errorf("holder %d, held %v, %v", pid, held, err)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if pid, held, err := first.Holder(); held || err != nil {
		t.Errorf("after Close: holder %d, held %v, %v", pid, held, err)
	}
	second := mustOpen(t, path)
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		prepare       func(t *testing.T, path string)
		want          []string
	}{
		{
			name: "a newer format, and says which program knows it", version: `{"format":2,"program":"egress-standalone v3.1.0"}`,
			want: []string{"has format 2, written by egress-standalone v3.1.0", program, "use the other program", "another --data-dir"},
		},
		{name: "a damaged version file", version: "{", want: []string{"the file version is damaged"}},
		{
			name: "a restore that was cut short", want: []string{"a restore was cut short", "restore again"},
			prepare: func(t *testing.T, path string) {
				if err := os.Mkdir(filepath.Join(path, "restoring"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := t.TempDir()
			if tt.version != "" {
				if err := os.WriteFile(filepath.Join(path, "version"), []byte(tt.version), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.prepare != nil {
				tt.prepare(t, path)
			}
			_, err := Open(path, program)
			if err == nil {
				t.Fatal("it was opened")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
			if content, _ := os.ReadFile(filepath.Join(path, "version")); string(content) != tt.version {
				t.Errorf("the version became %q", content)
			}
		})
	}
}

func TestOpenNotesTheProgram(t *testing.T) {
	path := t.TempDir()
	for _, program := range []string{"egress-standalone v1.0.0", "egress-standalone v1.1.0"} {
		dir, err := Open(path, program)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(dir.Version())
		if want := fmt.Sprintf(`{"format":1,"program":%q}`+"\n", program); err != nil || string(content) != want {
			t.Errorf("version %q (%v), want %q", content, err, want)
		}
		if got := dir.Program(); got != program {
			t.Errorf("program %q, want %q", got, program)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenEmpty(t *testing.T) {
	path := t.TempDir()
	dir, err := OpenEmpty(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenEmpty(path); err == nil || !strings.Contains(err.Error(), "is not empty (it has notes.txt)") {
		t.Errorf("error %v", err)
	}
}

func TestOpenNeedsAPath(t *testing.T) {
	if _, err := Open("", program); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("error %v, want one that names --data-dir", err)
	}
}

func TestDefault(t *testing.T) {
	for _, tt := range []struct {
		name, environment, xdg, home string
		want                         string
	}{
		{"the environment goes first", "/e", "/x", "/h", "/e"},
		{"then XDG_DATA_HOME", "", "/x", "/h", "/x/egress-proxies"},
		{"a relative XDG_DATA_HOME does not count", "", "x", "/h", "/h/.local/share/egress-proxies"},
		{"then the home", "", "", "/h", "/h/.local/share/egress-proxies"},
		{"nothing is guessed without a home", "", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("EGRESS_DATA_DIR", tt.environment)
			t.Setenv("XDG_DATA_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			if got := Default(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestWriteFileTakesNoModeOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, name := range []string{path, path + ".new"} {
		if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 600", info.Mode(), err)
	}
}

func TestLockCommand(t *testing.T) {
	paths, err := Resolve(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	release, err := paths.LockCommand(t.Context(), func() { t.Error("the first command waits") })
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 1)
	second := make(chan error, 1)
	go func() {
		release, err := paths.LockCommand(t.Context(), func() {
			select {
			case waits <- struct{}{}:
			default:
			}
		})
		if err == nil {
			err = release()
		}
		second <- err
	}()
	<-waits
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second command: %v", err)
	}
}

func mustOpen(t *testing.T, path string) *Dir {
	t.Helper()
	dir, err := Open(path, program)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
