// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	writers = 4
	// The kill comes once so many writes are acknowledged, in the middle of further ones.
	writesBeforeKill = 200
)

func TestKill9LosesNoAcknowledgedWrite(t *testing.T) {
	dataDir := t.TempDir()
	first := serve(t, dataDir)
	acknowledged := writeUntilKilled(t, first)

	second := serve(t, dataDir)
	list, err := second.client().CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for i := range list.Items {
		kept[list.Items[i].Name] = true
	}
	lost := 0
	for _, name := range acknowledged {
		if !kept[name] {
			lost++
		}
	}
	t.Logf("%d writes acknowledged before kill -9, %d lost", len(acknowledged), lost)
	if lost > 0 {
		t.Errorf("%d acknowledged writes are lost", lost)
	}
}

// writeUntilKilled writes from several sides, kills the server while they write, and
// returns the names of what the server acknowledged.
func writeUntilKilled(t *testing.T, s *server) []string {
	t.Helper()
	client := s.client()
	acknowledged := make(chan string)
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() { writeConfigMaps(t.Context(), client, writer, acknowledged) })
	}
	go func() {
		running.Wait()
		close(acknowledged)
	}()
	var names []string
	for name := range acknowledged {
		names = append(names, name)
		if len(names) == writesBeforeKill {
			if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	<-s.ended
	if len(names) < writesBeforeKill {
		t.Fatalf("only %d writes before the first error", len(names))
	}
	return names
}

func writeConfigMaps(ctx context.Context, client kubernetes.Interface, writer int, acknowledged chan<- string) {
	for n := 0; ; n++ {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("writer-%d-%d", writer, n)}}
		if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return
		}
		acknowledged <- made.Name
	}
}

func TestStopAndStartAgain(t *testing.T) {
	// Longer than a Unix socket's path may be.
	dataDir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30), "data")
	first := serve(t, dataDir)
	oldConfig := first.config()

	t.Run("what is secret has mode 0600, in folders of mode 0700", func(t *testing.T) { checkModes(t, dataDir) })
	t.Run("a second server on the same data directory is refused", func(t *testing.T) {
		out, err := exec.Command(binary(t), "serve", "--api-only", "--data-dir", dataDir).CombinedOutput()
		if err == nil {
			t.Fatal("it ran")
		}
		want := fmt.Sprintf("is in use by another egress-standalone (process %d)", first.cmd.Process.Pid)
		if !strings.Contains(string(out), want) {
			t.Errorf("it printed %q, want a sentence with %q", out, want)
		}
	})
	t.Run("a port in use is refused", func(t *testing.T) {
		port := first.config().Host[len("https://127.0.0.1:"):]
		out, err := exec.Command(binary(t), "serve", "--api-only", "--data-dir", t.TempDir(), "--port", port).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "choose another --port, or 0 for a free one") {
			t.Errorf("error %v, printed %q", err, out)
		}
	})
	t.Run("SIGTERM ends it cleanly, with a watch open", func(t *testing.T) {
		watch, err := first.client().CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
		if err := first.end(syscall.SIGTERM); err != nil {
			t.Errorf("%v\n%s", err, first.output)
		}
		if lines := strings.Count(first.output.String(), "\n"); lines != 1 {
			t.Errorf("it printed more than the ready line:\n%s", first.output)
		}
		if _, err := os.Stat(filepath.Join(dataDir, "run", "etcd.sock")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("socket after the stop: %v", err)
		}
	})
	t.Run("the next start takes clients of the one before", func(t *testing.T) {
		second := serve(t, dataDir)
		if now := second.config().Host; now != oldConfig.Host {
			t.Errorf("the API is at %s, before at %s", now, oldConfig.Host)
		}
		if _, err := newClient(t, oldConfig).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if err := second.end(syscall.SIGINT); err != nil {
			t.Errorf("%v\n%s", err, second.output)
		}
	})
}

func checkModes(t *testing.T, dataDir string) {
	t.Helper()
	for name, want := range map[string]os.FileMode{"": 0o700, "etcd": 0o700, "run": 0o700, "pki": 0o700, "kubeconfig": 0o600} {
		info, err := os.Stat(filepath.Join(dataDir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", name, got, want)
		}
	}
}

func TestSIGTERMWhileItStarts(t *testing.T) {
	dataDir := t.TempDir()
	s := launch(t, dataDir)
	// From here on the start takes seconds: the database, the API, its first objects.
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, readyTimeout, true, func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(dataDir, "etcd", "member", "snap", "db"))
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, s.output)
	}
	if printed := s.output.String(); printed != "" {
		t.Errorf("it printed:\n%s", printed)
	}
}
