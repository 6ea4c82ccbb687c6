// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	readyTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// findBinary is one call of the build script for all tests.
var findBinary = sync.OnceValues(func() (string, error) {
	cmd := exec.Command(filepath.Join("..", "..", "hack", "build-standalone.sh"))
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	return strings.TrimSpace(string(path)), err
})

func binary(t *testing.T) string {
	t.Helper()
	path, err := findBinary()
	if err != nil {
		t.Fatalf("build-standalone.sh: %v", err)
	}
	return path
}

// server is one run of the binary; it is killed with the test where it still runs.
type server struct {
	t       *testing.T
	dataDir string
	cmd     *exec.Cmd
	ended   chan struct{}
	err     error // set before ended is closed
	output  *output
}

// serve starts a server and returns when it is ready.
func serve(t *testing.T, dataDir string, flags ...string) *server {
	t.Helper()
	s := launch(t, dataDir, flags...)
	select {
	case <-s.output.ready:
	case <-s.ended:
		t.Fatalf("the server ended: %v\n%s", s.err, s.output)
	case <-time.After(readyTimeout):
		t.Fatalf("the server is not ready after %s\n%s", readyTimeout, s.output)
	}
	return s
}

// launch starts a server: the Kubernetes API alone, unless there are other flags.
func launch(t *testing.T, dataDir string, flags ...string) *server {
	t.Helper()
	if len(flags) == 0 {
		flags = []string{"--api-only"}
	}
	s := &server{t: t, dataDir: dataDir, ended: make(chan struct{}), output: &output{ready: make(chan struct{})}}
	s.cmd = exec.Command(binary(t), append([]string{"serve", "--data-dir", dataDir}, flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The death signal comes with the end of the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.err = s.cmd.Wait()
		}
		close(s.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	// How it ends after this is no part of the test.
	t.Cleanup(func() { _ = s.end(syscall.SIGKILL) })
	return s
}

// end signals the server and returns how it ended.
func (s *server) end(signal syscall.Signal) error {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("signal %s: %v", signal, err)
	}
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		s.t.Errorf("the server did not end within %s of %s", stopTimeout, signal)
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	return s.err
}

func (s *server) kubeconfig() string { return filepath.Join(s.dataDir, "kubeconfig") }

func (s *server) config() *rest.Config {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (s *server) client() *kubernetes.Clientset { return newClient(s.t, s.config()) }

func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubectl runs the embedded kubectl against this server, with manifest on its standard input.
func (s *server) kubectl(manifest string, args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(s.t), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(withoutKubeconfig(os.Environ()), "EGRESS_DATA_DIR="+s.dataDir)
	cmd.Stdin = strings.NewReader(manifest)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *server) mustKubectl(manifest string, args ...string) string {
	s.t.Helper()
	out, err := s.kubectl(manifest, args...)
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func withoutKubeconfig(environment []string) []string {
	var kept []string
	for _, variable := range environment {
		if !strings.HasPrefix(variable, "KUBECONFIG=") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// output collects what the server prints and tells when it says that it is ready.
type output struct {
	ready   chan struct{}
	once    sync.Once
	mutex   sync.Mutex
	printed bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.printed.Write(b)
	for line := range strings.Lines(o.printed.String()) {
		if strings.HasPrefix(line, "ready: https://127.0.0.1:") && strings.HasSuffix(line, "\n") {
			if o.ready != nil {
				o.once.Do(func() { close(o.ready) })
			}
		}
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.printed.String()
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, readyTimeout, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
