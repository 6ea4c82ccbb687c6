// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const brokenProviders = `version: 1
reflectors:
  - url: ftp://x
entries:
  - name: Home
    type: kvm3
`

// nobody is an unprivileged user: root may write everywhere.
const nobody = 65534

// TestBadStarts: what cannot start says what to do, and with which exit code.
func TestBadStarts(t *testing.T) {
	readOnly := filepath.Join(t.TempDir(), "not-mine")
	if err := os.Mkdir(readOnly, 0o755); err != nil {
		t.Fatal(err)
	}
	newer := t.TempDir()
	write(t, filepath.Join(newer, "version"), `{"format":2,"program":"egress-standalone v9.0.0"}`)
	broken := filepath.Join(t.TempDir(), "providers.yaml")
	write(t, broken, brokenProviders)
	taken := listen(t)

	for _, tt := range []struct {
		name string
		args []string
		env  []string
		user uint32
		code int
		want []string
	}{
		{
			name: "a data directory that is not writable", args: []string{"serve", "--data-dir", readOnly}, user: nobody, code: 1,
			want: []string{"data directory " + readOnly + " cannot be written by user 65534", "choose another --data-dir"},
		},
		{
			name: "a data directory of a newer version", args: []string{"serve", "--data-dir", newer}, code: 1,
			want: []string{"has format 2, written by egress-standalone v9.0.0", "use the other program"},
		},
		{
			name: "a port that is taken", args: []string{"serve", "--api-only", "--data-dir", t.TempDir(), "--port", port(taken)}, code: 1,
			want: []string{"cannot listen for the API", "address already in use", "choose another --port"},
		},
		{
			name: "a reflector's address that is taken", args: []string{"serve", "--data-dir", t.TempDir(), "--reflector", taken}, code: 1,
			want: []string{"cannot listen for the reflector", "address already in use", "--reflector none"},
		},
		{
			name: "a broken providers file", args: []string{"serve", "--data-dir", t.TempDir(), "--providers", broken}, code: 2,
			want: []string{broken + ":3: ", broken + ":5: ", broken + ":6: "},
		},
		{
			name: "a missing providers file", args: []string{"serve", "--data-dir", t.TempDir(), "--providers", "/nonesuch.yaml"}, code: 2,
			want: []string{"/nonesuch.yaml"},
		},
		{name: "a wrong flag", args: []string{"serve", "--nonesuch"}, code: 2, want: []string{"--nonesuch", "--help"}},
		{name: "a wrong log format", args: []string{"serve", "--data-dir", t.TempDir(), "--log-format", "xml"}, code: 2, want: []string{"text, json or auto"}},
		{name: "an unknown command", args: []string{"nonesuch"}, code: 2, want: []string{"nonesuch"}},
		{
			name: "no data directory at all", args: []string{"serve"}, env: []string{"EGRESS_DATA_DIR=", "XDG_DATA_HOME=", "HOME="}, code: 2,
			want: []string{"give --data-dir DIR"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(binary(t), tt.args...)
			cmd.Env = append(os.Environ(), tt.env...)
			if tt.user != 0 {
				asUser(t, cmd, tt.user)
			}
			out, err := cmd.CombinedOutput()
			if code := exitCode(t, err); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("printed %q, want %q in it", out, want)
				}
			}
		})
	}
}

// asUser runs a command as another user, who may not enter the folders of the test's own: the binary is copied to where everybody may.
func asUser(t *testing.T, cmd *exec.Cmd, id uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		// Then the folder is made unwritable for this user instead.
		for _, arg := range cmd.Args {
			if info, err := os.Stat(arg); err == nil && info.IsDir() {
				if err := os.Chmod(arg, 0o500); err != nil {
					t.Fatal(err)
				}
			}
		}
		return
	}
	cmd.Path = publicBinary(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	var home []string
	for _, variable := range cmd.Env {
		if path, ok := strings.CutPrefix(variable, "HOME="); ok {
			home = append(home, path)
		}
	}
	for _, arg := range append(home, cmd.Args...) {
		for dir := filepath.Dir(arg); filepath.IsAbs(arg) && strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// publicBinary is a copy of the program that every user may run.
func publicBinary(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "egress-standalone-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "egress-standalone")
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, content, 0o755)) //nolint:gosec // A program that others may run is the point.
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"up", "down", "serve", "backup", "restore", "kubectl", "config check", "reflector"} {
		t.Run(command, func(t *testing.T) {
			args := append(strings.Fields(command), "--help")
			if command == "kubectl" {
				args = []string{"help", "kubectl"}
			}
			out, err := exec.Command(binary(t), args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Examples:") || !strings.Contains(string(out), "egress-standalone") {
				t.Errorf("error %v, printed %q", err, out)
			}
		})
	}
	out, err := exec.Command(binary(t), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "egress-standalone ") || !strings.Contains(string(out), "Kubernetes v1.") {
		t.Errorf("--version: %v, %q", err, out)
	}
	out, err = exec.Command(binary(t), "completion", "bash").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "complete ") {
		t.Errorf("completion: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}
