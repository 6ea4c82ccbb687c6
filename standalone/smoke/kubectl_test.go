// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// No server is needed to see which kubeconfig kubectl took.
func TestWhichServerKubectlTalksTo(t *testing.T) {
	inEnvironment := dataDirWithContext(t, "by-environment")
	byFlag := dataDirWithContext(t, "by-flag")
	kubeconfig := filepath.Join(dataDirWithContext(t, "by-kubeconfig"), "kubeconfig")
	empty := t.TempDir()

	for _, tt := range []struct {
		name, dataDir, kubeconfig, flag string
		want                            string
		wantFail                        bool
	}{
		{name: "the data directory of the environment", dataDir: inEnvironment, want: "by-environment"},
		{name: "KUBECONFIG before the environment's data directory", dataDir: inEnvironment, kubeconfig: kubeconfig, want: "by-kubeconfig"},
		{name: "the flag before both", dataDir: inEnvironment, kubeconfig: kubeconfig, flag: byFlag, want: "by-flag"},
		{name: "a data directory without a server", dataDir: empty, want: "no server runs in data directory " + empty, wantFail: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"kubectl", "config", "current-context"}
			if tt.flag != "" {
				args = append([]string{"--data-dir", tt.flag}, args...)
			}
			cmd := exec.Command(binary(t), args...)
			cmd.Env = append(withoutKubeconfig(os.Environ()), "EGRESS_DATA_DIR="+tt.dataDir, "KUBECONFIG="+tt.kubeconfig)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.wantFail {
				t.Errorf("error %v, want one: %v", err, tt.wantFail)
			}
			if !strings.Contains(string(out), tt.want) {
				t.Errorf("printed %q, want %q", out, tt.want)
			}
		})
	}
}

func dataDirWithContext(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	content := "apiVersion: v1\nkind: Config\ncurrent-context: " + name + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
