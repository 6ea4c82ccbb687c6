// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package kit is what the benchmarks on a real libvirt host share.
package kit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// Main runs a benchmark until it ends or is interrupted, and says by the exit code whether it failed.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	Exit(name, err)
}

// Exit ends the program.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, name+": failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Say prints a line with the time of day.
func Say(format string, args ...any) {
	fmt.Printf("[%s] %s\n", time.Now().Format("15:04:05.00"), fmt.Sprintf(format, args...))
}

// TakeDown leaves nothing of a benchmark's host, whatever ended it.
func TakeDown(host *kvmhost.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return host.Down(ctx, true)
}

// SSHConfig writes a file for ssh into dir, which pins the host's keys; more lines are added, and the rest is left at ssh's defaults.
func SSHConfig(dir string, host *kvmhost.Host, more ...string) (path string, err error) {
	lines := []string{
		"IdentityFile " + host.KeyFile, "IdentitiesOnly yes", "UserKnownHostsFile " + host.KnownHostsFile, "StrictHostKeyChecking yes", "BatchMode yes",
	}
	path = filepath.Join(dir, "ssh_config")
	return path, os.WriteFile(path, []byte(strings.Join(append(lines, more...), "\n")+"\n"), 0o600)
}

// SSHHost is what ssh calls a host.
func SSHHost(host *kvmhost.Host) string {
	address, _, _ := strings.Cut(host.SSHAddress, ":")
	return host.User + "@" + address
}

// Timed runs a command; its error has what the command wrote.
func Timed(cmd *exec.Cmd) (time.Duration, error) {
	start := time.Now()
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(out.String()))
	}
	return took, nil
}
