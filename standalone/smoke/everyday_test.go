// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const everydayManifest = `apiVersion: egressproxies.dev/v1alpha1
kind: Proxy
metadata:
  name: everyday
  labels: {team: %s}
spec:
  provider: local
`

// TestEverydayKubectl does what people do, with the kubectl that the program carries and with one that is installed on the machine.
func TestEverydayKubectl(t *testing.T) {
	i := newInstallation(t, "  - {name: local, type: local, addresses: [127.94.9.0/30]}\n")
	i.must("up", "--no-samples")
	kubeconfig := []string{"--kubeconfig", i.dataDir + "/kubeconfig"}
	t.Run("carried", func(t *testing.T) {
		everyday{t, func() []string { return []string{binary(t), "--data-dir", i.dataDir, "kubectl"} }}.run()
	})
	t.Run("installed", func(t *testing.T) {
		path, err := exec.LookPath("kubectl")
		if err != nil {
			t.Fatal("no kubectl is installed: apt-get install kubernetes-client, or any other")
		}
		everyday{t, func() []string { return append([]string{path}, kubeconfig...) }}.run()
	})
}

// everyday is one kubectl.
type everyday struct {
	t       *testing.T
	command func() []string
}

// kubectl runs a command, and returns what it printed and its exit code.
func (e everyday) kubectl(stdin string, args ...string) (string, int) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 2*time.Minute)
	defer cancel()
	command := append(e.command(), args...)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(withoutKubeconfig(os.Environ()), "HOME="+e.t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		e.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// expect runs a command that must end with a code, and print each of the parts.
func (e everyday) expect(stdin string, code int, parts []string, args ...string) {
	e.t.Helper()
	out, got := e.kubectl(stdin, args...)
	if got != code {
		e.t.Fatalf("kubectl %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			e.t.Errorf("kubectl %s does not print %q:\n%s", strings.Join(args, " "), part, out)
		}
	}
}

func (e everyday) run() {
	one, two := strings.ReplaceAll(everydayManifest, "%s", "one"), strings.ReplaceAll(everydayManifest, "%s", "two")
	// What explain reads is collected in the background after a start.
	eventually(e.t, "the schema of Proxies", func() bool { _, code := e.kubectl("", "explain", "proxy"); return code == 0 })
	e.expect("", 0, []string{"provider", "placement", "<Object>", "Immutable"}, "explain", "proxy.spec")
	e.expect(one, 1, []string{"+kind: Proxy"}, "diff", "-f", "-")
	e.expect(one, 0, []string{"proxy.egressproxies.dev/everyday serverside-applied"}, "apply", "--server-side", "-f", "-")
	e.expect("", 0, []string{"condition met"}, "wait", "--for=condition=Ready", "proxy/everyday", "--timeout=60s")
	e.expect(one, 0, nil, "diff", "--server-side", "-f", "-")
	e.expect(two, 1, []string{"-    team: one", "+    team: two"}, "diff", "--server-side", "-f", "-")
	e.expect(two, 0, []string{"serverside-applied"}, "apply", "--server-side", "-f", "-")
	e.expect(two, 0, nil, "diff", "--server-side", "-f", "-")
	e.expect("", 0, []string{"NAME", "READY", "REASON", "EXIT", "ENDPOINT", "HOST", "everyday", "True", "127.94.9."}, "get", "proxies")
	e.expect("", 0, []string{"MESSAGE", "in rotation"}, "get", "proxies", "-o", "wide")
	e.expect("", 0, []string{"team=two"}, "get", "proxy", "everyday", "--show-labels")
	e.expect("", 0, []string{"Conditions:", "Ready"}, "describe", "proxy", "everyday")
	e.expect(strings.Replace(two, "provider: local", "provider: other", 1), 1, []string{"spec.provider is immutable"}, "apply", "--server-side", "-f", "-")
	e.expect(strings.Replace(two, "provider: local", "providr: local", 1), 1, []string{"providr"}, "apply", "--server-side", "-f", "-")
	e.expect("", 0, []string{`"everyday" deleted`}, "delete", "proxy", "everyday", "--timeout=60s")
	e.expect("", 1, []string{"NotFound"}, "get", "proxy", "everyday")
}
