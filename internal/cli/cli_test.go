// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestMain(m *testing.M) {
	code := kubeapi.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		slog.Error(err.Error())
		code = 1
	}
	os.Exit(code)
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodFile = "version: 1\nreflectors:\n  - url: http://127.0.0.1:1/\nentries: []\n"

const badFile = `version: 1
reflectors:
  - url: ftp://x
entries:
  - name: Home
    type: kvm3
    hostz: []
    defaults: {vcpus: 0}
`

func TestExitCodes(t *testing.T) {
	good, bad := write(t, "good.yaml", goodFile), write(t, "bad.yaml", badFile)
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err []string
	}{
		"help":                  {[]string{"--help"}, ExitOK, []string{"operator", "reflector", "Exit codes"}, nil},
		"no arguments":          {nil, ExitOK, []string{"Usage"}, nil},
		"version":               {[]string{"version"}, ExitOK, []string{"egress-proxies "}, nil},
		"--version":             {[]string{"--version"}, ExitOK, []string{"egress-proxies"}, nil},
		"examples":              {[]string{"operator", "--help"}, ExitOK, []string{"Examples:", "--kubeconfig"}, nil},
		"unknown command":       {[]string{"operate"}, ExitUsage, nil, []string{"operate"}},
		"unknown flag":          {[]string{"operator", "--nonesuch"}, ExitUsage, nil, []string{"--nonesuch", "--help"}},
		"no providers":          {[]string{"operator"}, ExitUsage, nil, []string{"--providers is required"}},
		"missing file":          {[]string{"operator", "--providers", "/nonesuch.yaml"}, ExitUsage, nil, []string{"/nonesuch.yaml"}},
		"bad log format":        {[]string{"operator", "--log-format", "xml"}, ExitUsage, nil, []string{"text, json or auto"}},
		"bad kubeconfig":        {[]string{"operator", "--providers", good, "--kubeconfig", "/nonesuch"}, ExitFailed, nil, []string{"/nonesuch"}},
		"no workers":            {[]string{"operator", "--providers", good, "--max-concurrent", "0"}, ExitUsage, nil, []string{"at least 1"}},
		"a good file":           {[]string{"config", "check", good}, ExitOK, []string{": ok: "}, nil},
		"a file with mistakes":  {[]string{"config", "check", bad}, ExitUsage, nil, []string{bad + ":3: ", bad + ":5: ", bad + ":6: ", bad + ":7: ", bad + ":8: "}},
		"the schema":            {[]string{"config", "schema"}, ExitOK, []string{`"$schema"`, "allowEmulation"}, nil},
		"no file":               {[]string{"config", "check"}, ExitUsage, nil, []string{"arg"}},
		"an address that is no": {[]string{"reflector", "--listen", "nonesuch"}, ExitFailed, nil, []string{"--listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, err bytes.Buffer
			if code := Run(t.Context(), c.args, &out, &err); code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, c.code, &err)
			}
			for _, part := range c.out {
				if !strings.Contains(out.String(), part) {
					t.Errorf("stdout does not say %q: %s", part, &out)
				}
			}
			for _, part := range c.err {
				if !strings.Contains(err.String(), part) {
					t.Errorf("stderr does not say %q: %s", part, &err)
				}
			}
		})
	}
}

// safeBuffer is written to by the operator while the test reads.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTheOperatorRunsAndEndsCleanly(t *testing.T) {
	checks := freeAddress(t)
	r := runOperator(t, write(t, "providers.yaml", goodFile), "--health-probe-bind-address", checks)
	r.until("ready", func() bool {
		response, err := http.Get("http://" + checks + "/readyz")
		if err != nil {
			return false
		}
		return response.StatusCode == http.StatusOK && response.Body.Close() == nil
	})
	http.DefaultClient.CloseIdleConnections()
	p := r.create("p", "nonesuch")
	r.until("said about a Proxy of an unknown entry", func() bool {
		return meta.IsStatusConditionTrue(r.read(p).Status.Conditions, v1alpha1.ConditionStalled)
	})
	r.end()
	if !strings.Contains(r.log.String(), `"msg":"operator ends"`) {
		t.Errorf("no JSON log of a clean end: %s", &r.log)
	}
}

// freeAddress is one that nobody listens on, as a rule.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestAgents(t *testing.T) {
	dir := t.TempDir()
	agents, err := agentsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agents("x86_64"); err == nil || !strings.Contains(err.Error(), "egress-agent-linux-amd64") {
		t.Errorf("a missing agent: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "egress-agent-linux-amd64"), []byte("agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := agents("x86_64")
	if err != nil || len(file.SHA256) != 64 || file.Version == "" {
		t.Fatalf("%+v, %v", file, err)
	}
	if content, err := file.Read(); err != nil || string(content) != "agent" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := agents("riscv64"); err == nil {
		t.Error("an agent for an architecture that there is none for")
	}
}
