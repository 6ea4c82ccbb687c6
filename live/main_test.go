// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package live proves the whole on real parts: libvirt hosts, sshd, QEMU, a Kubernetes API, and the operator as a process.
package live

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

// asOperator in the environment makes this test binary an operator that dies at a chosen step (see killer_test.go).
const asOperator = "EGRESS_LIVE_OPERATOR"

var shared struct {
	once sync.Once
	dir  string
	lab  *lab.Lab
	err  error
}

func TestMain(m *testing.M) {
	if step := os.Getenv(asOperator); step != "" {
		os.Exit(runDyingOperator(step))
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runDyingOperator(step string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr, killerAt(step))
}

// theLab is the installation that these tests share, with the operator running.
func theLab(t *testing.T) *lab.Lab {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "egress-live-"); shared.err != nil {
			return
		}
		shared.lab, shared.err = lab.Start(t.Context(), shared.dir, 1, 2)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log:\n%s", tail(shared.lab))
		}
		clean(t, shared.lab)
	})
	if shared.lab.Operator == nil {
		if err := shared.lab.StartOperator(); err != nil {
			t.Fatal(err)
		}
	}
	return shared.lab
}

func tail(l *lab.Lab) string {
	if l.Operator == nil {
		return "(no operator runs)"
	}
	text := l.Operator.Output()
	return text[max(0, len(text)-8000):]
}

// clean removes what a test has left, whatever happened: Proxies without their finalizers, then all that bears our prefix.
func clean(t *testing.T, l *lab.Lab) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !t.Failed() {
		return
	}
	if l.Operator != nil {
		_ = l.StopOperator()
	}
	_, _ = l.Kubectl(ctx, "", "delete", "proxies", "--all", "-n", "default", "--wait=false")
	names, err := l.Kubectl(ctx, "", "get", "proxies", "-n", "default", "-o", "name")
	if err == nil {
		for _, name := range slices.DeleteFunc(splitLines(names), func(s string) bool { return s == "" }) {
			_, _ = l.Kubectl(ctx, "", "patch", name, "-n", "default", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
	}
	for _, h := range l.Hosts {
		if err := lab.Wipe(ctx, h); err != nil {
			t.Error(err)
		}
	}
}

func closeShared() error {
	if shared.dir == "" {
		return nil
	}
	defer os.RemoveAll(shared.dir)
	if shared.lab == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := shared.lab.Close()
	for _, h := range shared.lab.Hosts {
		if wipeErr := lab.Wipe(ctx, h); wipeErr != nil && err == nil {
			err = wipeErr
		}
	}
	return err
}
