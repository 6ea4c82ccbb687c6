// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
)

// asAgent makes this test binary be the agent, in a process of its own.
const asAgent = "EGRESS_AGENT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

const (
	username = "user"
	password = "old-p$ss:wörd"
)

// process is an agent in a process of its own.
type process struct {
	command *exec.Cmd
	ended   chan error
	mu      sync.Mutex
	stderr  bytes.Buffer
}

func (p *process) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(data)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// freePort is a port that nothing listens on, in either family.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func testConfig(t *testing.T) agentapi.Config {
	t.Helper()
	return agentapi.Config{
		Version: 1, ListenPort: freePort(t), ControlKey: agentapi.NewKey(),
		Credentials: []agentapi.Credential{{Username: username, Password: password}},
		Limits:      agentapi.Limits{DrainSeconds: 20},
	}
}

func writeConfig(t *testing.T, path string, config agentapi.Config) {
	t.Helper()
	data, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// startProcess starts an agent and waits until its port answers.
func startProcess(t *testing.T, path string, config agentapi.Config) *process {
	t.Helper()
	p := &process{ended: make(chan error, 1)}
	p.command = exec.Command(os.Args[0], "--config", path)
	p.command.Env = append(os.Environ(), asAgent+"=1", "GOMEMLIMIT=64MiB")
	p.command.Stderr = p
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { p.ended <- p.command.Wait(); close(waited) }()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-waited
	})
	eventually(t, "the agent listens", func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.ListenPort)))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return p
}

// stop sends SIGTERM and expects an orderly end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.waitEnd(t)
}

func (p *process) waitEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("the agent ended with %v:\n%s", err, p.log())
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the agent does not end:\n%s", p.log())
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	config := testConfig(t)
	writeConfig(t, good, config)
	_ = os.WriteFile(bad, []byte(`{"version":1,"listenPort":0,"controlKey":"","extra":1}`), 0o600)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"version", []string{"--version"}, exitOK, "egress-agent "},
		{"help", []string{"--help"}, exitOK, "Usage:"},
		{"check", []string{"--config", good, "--check"}, exitOK, fmt.Sprintf("ok, port %d, 1 credentials", config.ListenPort)},
		{"check of a bad file", []string{"--config", bad, "--check"}, exitUsage, bad + ": "},
		{"no file", []string{"--config", filepath.Join(dir, "none.json")}, exitUsage, "no such file"},
		{"no config", nil, exitUsage, "Usage:"},
		{"unknown flag", []string{"--confg", good}, exitUsage, "not defined: -confg"},
		{"argument", []string{"--config", good, "serve"}, exitUsage, "Usage:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("exit %d, want %d, with %q in:\n%s", code, c.code, c.want, &out)
			}
		})
	}
}

func TestPortTaken(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	config := testConfig(t)
	config.ListenPort = listener.Addr().(*net.TCPAddr).Port
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--config", path}, &stderr, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "change listenPort") {
		t.Errorf("exit %d:\n%s", code, &stderr)
	}
}

// Whoever is told to stop twice, or before anything came, stops.
func TestStopsAtOnceWhenNothingIsOpen(t *testing.T) {
	config := testConfig(t)
	path := filepath.Join(t.TempDir(), "agent.json")
	writeConfig(t, path, config)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	if code := run(ctx, []string{"--config", path}, &stderr, &stderr); code != exitOK && code != exitFailed {
		t.Errorf("exit %d:\n%s", code, &stderr)
	}
}

// checkLog looks for secrets and for text that is not one line a record.
func checkLog(t *testing.T, log string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log has a secret in it:\n%s", log)
		}
	}
	lines := bufio.NewScanner(strings.NewReader(log))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "time=") {
			t.Errorf("not a record in one line: %q", lines.Text())
		}
	}
}
