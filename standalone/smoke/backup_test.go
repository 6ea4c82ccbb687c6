// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBackupAndRestore(t *testing.T) {
	i := newInstallation(t, localEntry)
	i.must("up")
	before := i.proxies()
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	out := i.must("backup", file, "--providers", i.providers)
	if !strings.Contains(out, "It holds secrets") {
		t.Errorf("printed %q", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	oldConfig := (&server{t: t, dataDir: i.dataDir}).config()
	i.must("down")

	restored := &installation{t: t, dataDir: filepath.Join(t.TempDir(), "restored"), reflector: i.reflector, providers: i.providers}
	t.Cleanup(restored.kill)
	restored.must("restore", file)
	restored.must("up")
	if after := restored.proxies(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("restored: %+v\nbefore:   %+v", after, before)
	}
	t.Run("a kubeconfig of before works", func(t *testing.T) {
		if _, err := newClient(t, oldConfig).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a restore over data is refused", func(t *testing.T) {
		out, err := restored.run("restore", file)
		if code := exitCode(t, err); code != 1 || !strings.Contains(out, "in use by another egress-standalone") {
			t.Errorf("exit code %d, printed %q", code, out)
		}
		out, err = i.run("restore", file)
		if code := exitCode(t, err); code != 1 || !strings.Contains(out, "is not empty") {
			t.Errorf("exit code %d, printed %q", code, out)
		}
	})
}

func TestTheOperatorEndsBeforeTheAPI(t *testing.T) {
	i := newInstallation(t, localEntry)
	s := serve(t, i.dataDir, "--providers", i.providers, "--reflector", i.reflector)
	eventually(t, "the operator to work", func() bool { return strings.Contains(s.output.String(), `"msg":"Starting workers"`) })
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, s.output)
	}
	printed := s.output.String()
	if !strings.Contains(printed, `"msg":"operator ends"`) {
		t.Errorf("the operator did not end well:\n%s", printed)
	}
	// A clean end has nothing to warn of.
	for _, level := range []string{"ERROR", "error", "WARN", "warn"} {
		if strings.Contains(printed, `"level":"`+level) && !strings.Contains(printed, "LimitNOFILE") {
			t.Errorf("a clean end logs at level %s:\n%s", level, printed)
		}
	}
}

func TestRenewal(t *testing.T) {
	dataDir := t.TempDir()
	s := launch(t, dataDir, "--api-only", "--renew-after", "4s")
	pid := s.cmd.Process.Pid
	eventually(t, "the server to start itself anew", func() bool { return strings.Count(s.output.String(), "ready: ") >= 2 || s.hasEnded() })
	if s.hasEnded() || s.cmd.Process.Pid != pid {
		t.Fatalf("it ended: %v\n%s", s.err, s.output)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, s.output)
	}
}
