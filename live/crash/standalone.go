// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/process"
)

// startTimeout is generous: a busy machine needs several times the usual seconds.
const startTimeout = 2 * time.Minute

// standalone is the process that is killed.
type standalone struct {
	program string
	args    []string
	data    string

	process *process.Process
	client  client.Client
}

// start starts it, and returns when it answers.
func (s *standalone) start(ctx context.Context) (err error) {
	args := append([]string{"serve", "--data-dir", s.data}, s.args...)
	if s.process, err = process.Start(exec.Command(s.program, args...), nil); err != nil {
		return err
	}
	err = lab.Until(ctx, startTimeout, "the standalone to be ready", func(context.Context) (bool, error) {
		select {
		case <-s.process.Ended():
			return false, errors.New("it ended")
		default:
			return strings.Contains(s.process.Output(), "ready:"), nil
		}
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.tail())
	}
	s.client, err = lab.NewClient(filepath.Join(s.data, "kubeconfig"))
	return err
}

// kill ends it the hard way; it may have ended, or never started.
func (s *standalone) kill() {
	if s.process != nil {
		_ = s.process.Kill()
	}
}

// tail is the end of what it printed.
func (s *standalone) tail() string {
	if s.process == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(s.process.Output()), "\n")
	return "the standalone's last lines:\n" + strings.Join(lines[max(0, len(lines)-30):], "\n")
}
