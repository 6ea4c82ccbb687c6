// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// server is the process behind an API; it may run, die and run again.
type server struct {
	binary, dataDir string
	// port is 0 until the first start has found a free one.
	port int

	process *os.Process
	ended   chan struct{}
	waitErr error // set before ended is closed
	output  *output
}

func start(binary, dataDir string) (*API, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	s := &server{binary: binary, dataDir: dataDir}
	if err := s.start(); err != nil {
		return nil, err
	}
	api, err := s.client(filepath.Join(root, "config", "crd"))
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return api, nil
}

func (s *server) client(crds string) (*API, error) {
	kubeconfig := filepath.Join(s.dataDir, "kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the test server: %w", err)
	}
	config.QPS = -1
	address, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("address of the test server: %w", err)
	}
	if s.port, err = strconv.Atoi(address.Port()); err != nil {
		return nil, fmt.Errorf("address of the test server: %w", err)
	}
	options := envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true, PollInterval: 20 * time.Millisecond}
	if _, err := envtest.InstallCRDs(config, options); err != nil {
		return nil, fmt.Errorf("custom resources of %s: %w", crds, err)
	}
	return &API{Config: config, Kubeconfig: kubeconfig, Binary: s.binary, server: s}, nil
}

// start returns when the server answers. The server dies with this process, however that ends.
func (s *server) start() error {
	if s.running() {
		return errors.New("the test server runs already: end it with Kill9 first")
	}
	// stop and kill end it, and the death signal; no context does.
	cmd := exec.CommandContext(context.Background(), s.binary, "serve", "--data-dir", s.dataDir, "--port", strconv.Itoa(s.port))
	s.output = newOutput()
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that started the child ends, so it must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.waitErr = cmd.Wait()
		}
		close(s.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start the test server: %w", err)
	}
	s.process = cmd.Process
	select {
	case <-s.output.ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("the test server ended while it started: %w; it printed: %s", s.waitErr, s.output)
	case <-time.After(startTimeout):
		return errors.Join(fmt.Errorf("the test server was not ready within %s; it printed: %s", startTimeout, s.output), s.kill())
	}
}

func (s *server) running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// stop ends a running server in good order, and reports when that was not possible.
func (s *server) stop() error {
	if !s.running() {
		return nil
	}
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the test server did not stop within %s; it printed: %s", stopTimeout, s.output), s.kill())
	}
	if s.waitErr != nil {
		return fmt.Errorf("the test server stopped with an error: %w; it printed: %s", s.waitErr, s.output)
	}
	return nil
}

func (s *server) kill() error {
	if !s.running() {
		return nil
	}
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.ended
	return nil
}

func (s *server) signal(signal syscall.Signal) error {
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s to the test server: %w", signal, err)
	}
	return nil
}

// output keeps the first part of what a server prints and tells when it says that it is ready.
type output struct {
	ready chan struct{}

	mutex   sync.Mutex
	printed strings.Builder
	told    bool
}

const outputLimit = 64 << 10

func newOutput() *output { return &output{ready: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if room := outputLimit - o.printed.Len(); room > 0 {
		o.printed.Write(b[:min(len(b), room)])
	}
	if !o.told && hasReadyLine(o.printed.String()) {
		o.told = true
		close(o.ready)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.printed.String()
}

func hasReadyLine(printed string) bool {
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "ready:") && strings.HasSuffix(line, "\n") {
			return true
		}
	}
	return false
}
