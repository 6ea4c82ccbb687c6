// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/egress-proxies/egress-proxies-operator/test/process"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// server is the process behind an API; it may run, die and run again.
type server struct {
	binary, dataDir string
	// port is 0 until the first start has found a free one.
	port    int
	process *process.Process
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
	watch := &readiness{ready: make(chan struct{})}
	var err error
	if s.process, err = process.Start(exec.Command(s.binary, "serve", "--api-only", "--data-dir", s.dataDir, "--port", strconv.Itoa(s.port)), watch); err != nil {
		return err
	}
	select {
	case <-watch.ready:
		return nil
	case <-s.process.Ended():
		return fmt.Errorf("the test server ended while it started; it printed: %s", s.process.Output())
	case <-time.After(startTimeout):
		return errors.Join(fmt.Errorf("the test server was not ready within %s; it printed: %s", startTimeout, s.process.Output()), s.kill())
	}
}

func (s *server) running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.Ended():
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
	return s.process.Stop(stopTimeout)
}

func (s *server) kill() error {
	if !s.running() {
		return nil
	}
	return s.process.Kill()
}

// readiness reads along and tells when the server says that it is ready.
type readiness struct {
	ready   chan struct{}
	printed strings.Builder
	told    bool
}

func (r *readiness) Write(b []byte) (int, error) {
	if r.told {
		return len(b), nil
	}
	r.printed.Write(b)
	if hasReadyLine(r.printed.String()) {
		r.told = true
		close(r.ready)
	}
	return len(b), nil
}

func hasReadyLine(printed string) bool {
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "ready:") && strings.HasSuffix(line, "\n") {
			return true
		}
	}
	return false
}
