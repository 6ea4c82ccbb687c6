// SPDX-License-Identifier: Apache-2.0

package smoke

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const commandTimeout = 4 * time.Minute

// installation is a data directory with addresses of its own, so that it stands beside others.
type installation struct {
	t         *testing.T
	dataDir   string
	reflector string
	providers string
}

func newInstallation(t *testing.T, entries string) *installation {
	t.Helper()
	i := &installation{t: t, dataDir: filepath.Join(t.TempDir(), "data"), reflector: freeAddress(t), providers: filepath.Join(t.TempDir(), "providers.yaml")}
	write(t, i.providers, fmt.Sprintf("version: 1\nreflectors:\n  - url: http://%s/\nprobe: {interval: 5s}\nentries:\n%s", i.reflector, entries))
	// Whatever the test left behind ends with it.
	t.Cleanup(i.kill)
	return i
}

// localEntry has its exits where no other test has them.
const localEntry = "  - {name: local, type: local, addresses: [127.94.7.0/29]}\n"

func (i *installation) run(command string, args ...string) (string, error) {
	i.t.Helper()
	// Cleanup runs after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.t.Context()), commandTimeout)
	defer cancel()
	all := append([]string{"--data-dir", i.dataDir, command}, args...)
	if command == "up" || command == "down" {
		all = append(all, "--providers", i.providers, "--reflector", i.reflector)
	}
	cmd := exec.CommandContext(ctx, binary(i.t), all...)
	cmd.Env = withoutKubeconfig(os.Environ())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (i *installation) must(command string, args ...string) string {
	i.t.Helper()
	out, err := i.run(command, args...)
	if err != nil {
		i.t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return out
}

// pid of the server, or 0.
func (i *installation) pid() int {
	content, err := os.ReadFile(filepath.Join(i.dataDir, "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || !i.serves(pid) {
		return 0
	}
	return pid
}

// serves says whether a process is this installation's server: numbers are used again.
func (i *installation) serves(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), i.dataDir) && strings.Contains(string(line), "\x00serve\x00")
}

// kill ends the server as a power cut would, and returns when it is gone.
func (i *installation) kill() {
	i.t.Helper()
	pid := i.pid()
	if pid == 0 {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		i.t.Errorf("kill process %d: %v", pid, err)
	}
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, stopTimeout, true, func(context.Context) (bool, error) {
		return !i.serves(pid), nil
	})
	if err != nil {
		i.t.Errorf("process %d does not end: %v", pid, err)
	}
}

type proxy struct{ Name, UID, Endpoint, Host, Exit, Password string }

// proxies are the Proxies of all namespaces, with their credentials.
func (i *installation) proxies() []proxy {
	i.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, UID string }
			Status   struct {
				Endpoint, Host, CredentialsSecret string
				ExitIPs                           []string
			}
		}
	}
	if err := json.Unmarshal([]byte(i.must("kubectl", "get", "proxies", "-A", "-o", "json")), &list); err != nil {
		i.t.Fatal(err)
	}
	var found []proxy
	for _, item := range list.Items {
		password := i.must("kubectl", "get", "secret", "-n", item.Metadata.Namespace, item.Status.CredentialsSecret, "-o", "go-template={{.data.password}}")
		found = append(found, proxy{
			Name: item.Metadata.Name, UID: item.Metadata.UID, Endpoint: item.Status.Endpoint, Host: item.Status.Host,
			Exit: strings.Join(item.Status.ExitIPs, " "), Password: password,
		})
	}
	return found
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.11:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// listen takes an address for the time of the test.
func listen(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

func TestUpAndDown(t *testing.T) {
	i := newInstallation(t, localEntry)
	printed := i.must("up")
	before := i.proxies()

	t.Run("three Proxies, each seen by the reflector from its own address", func(t *testing.T) {
		exits := map[string]bool{}
		for _, p := range before {
			exits[p.Exit] = true
		}
		if len(before) != 3 || len(exits) != 3 || exits[""] {
			t.Errorf("%+v", before)
		}
	})
	t.Run("what is printed works when pasted, in another folder", func(t *testing.T) { checkPasted(t, printed, before) })
	t.Run("a second up is quick and changes nothing", func(t *testing.T) {
		pid, begin := i.pid(), time.Now()
		i.must("kubectl", "patch", "proxy", "exit-b", "--type=merge", "-p", `{"spec":{"probe":{"intervalSeconds":10}}}`)
		again := i.must("up")
		t.Logf("the second up took %s", time.Since(begin))
		if i.pid() != pid || !strings.Contains(again, "runs already") {
			t.Errorf("process %d, before %d; printed %q", i.pid(), pid, again)
		}
		if interval := i.must("kubectl", "get", "proxy", "exit-b", "-o", "jsonpath={.spec.probe.intervalSeconds}"); interval != "10" {
			t.Errorf("the user's change is gone: interval %q", interval)
		}
	})
	t.Run("after kill -9 the same three are back, with the same credentials", func(t *testing.T) {
		i.kill()
		begin := time.Now()
		printed := i.must("up")
		took := time.Since(begin)
		// What up calls Ready works right then.
		checkPasted(t, printed, before)
		fmt.Printf("figure: kill -9, then up: everything Ready after %.1f s\n", took.Seconds())
		if after := i.proxies(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("after:  %+v\nbefore: %+v", after, before)
		}
	})
	t.Run("a deleted sample stays deleted with --no-samples", func(t *testing.T) {
		i.must("kubectl", "delete", "proxy", "exit-c", "--timeout=60s")
		i.must("up", "--no-samples")
		if found := i.proxies(); len(found) != 2 {
			t.Errorf("%+v", found)
		}
	})
	t.Run("down stops it, and a second down says that nothing runs", func(t *testing.T) {
		pid := i.pid()
		i.must("down")
		if i.serves(pid) {
			t.Errorf("process %d still runs", pid)
		}
		if out := i.must("down"); !strings.Contains(out, "no server runs") {
			t.Errorf("printed %q", out)
		}
	})
	t.Run("down --wipe of a stopped server deletes the Proxies and the data", func(t *testing.T) {
		out := i.must("down", "--wipe")
		if !strings.Contains(out, "Proxies deleted: 2") {
			t.Errorf("printed %q", out)
		}
		left, err := os.ReadDir(i.dataDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range left {
			if entry.Name() != "lock" && entry.Name() != "command.lock" {
				t.Errorf("%s is left", entry.Name())
			}
		}
	})
}

// checkPasted runs the printed lines in a shell, as they are.
func checkPasted(t *testing.T, printed string, proxies []proxy) {
	t.Helper()
	for _, p := range proxies {
		if strings.Contains(printed, p.Password) {
			t.Error("a password was printed")
		}
	}
	ran := 0
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "kubectl") && !strings.Contains(line, "curl") {
			continue
		}
		ran++
		cmd := exec.Command("sh", "-c", strings.TrimSpace(line))
		cmd.Dir = t.TempDir()
		cmd.Env = withoutKubeconfig(os.Environ())
		out, err := cmd.CombinedOutput()
		want := proxies[0].Name
		if strings.Contains(line, "curl") {
			want = proxies[0].Exit
		}
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, printed %q, want %q in it", line, err, out, want)
		}
	}
	if ran != 2 {
		t.Errorf("%d lines to paste in:\n%s", ran, printed)
	}
}

func TestWipeRefusesWhatCannotBeDeleted(t *testing.T) {
	i := newInstallation(t, localEntry)
	i.must("up", "--no-samples")
	// Somebody else's finalizer stands for a host that does not answer: the object cannot go.
	manifest := filepath.Join(t.TempDir(), "stuck.yaml")
	write(t, manifest, "apiVersion: egressproxies.dev/v1alpha1\nkind: Proxy\nmetadata: {name: stuck, finalizers: [example.org/held]}\nspec: {provider: local}\n")
	i.must("kubectl", "apply", "-f", manifest)
	i.must("kubectl", "wait", "--for=condition=Ready", "proxy/stuck", "--timeout=60s")

	out, err := i.run("down", "--wipe", "--timeout", "3s")
	if code := exitCode(t, err); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"1 Proxies could not be deleted, so nothing else was", "default/stuck on host 127.94.7.", "the data are kept"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if i.pid() == 0 {
		t.Error("the server was stopped")
	}
	i.must("kubectl", "patch", "proxy", "stuck", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	i.must("down", "--wipe")
	if _, err := os.Stat(filepath.Join(i.dataDir, "etcd")); !os.IsNotExist(err) {
		t.Errorf("the data are still there (%v)", err)
	}
}

func TestUpSaysWhatIsInTheWay(t *testing.T) {
	i := newInstallation(t, "  - {name: local, type: local, addresses: [127.94.7.8/31]}\n")
	out, err := i.run("up", "--timeout", "15s")
	if code := exitCode(t, err); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"not every Proxy is Ready: not within --timeout 15s", "Proxy exit-", "the server goes on in the background"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	i.must("down")
}

// TestUpAsAnybody is the first minute of somebody without rights, without any flag that is about the data.
func TestUpAsAnybody(t *testing.T) {
	i := newInstallation(t, localEntry)
	home := t.TempDir()
	i.dataDir = filepath.Join(home, ".local", "share", "egress-proxies")
	command := func(name string) string {
		t.Helper()
		cmd := exec.Command(binary(t), name, "--providers", i.providers, "--reflector", i.reflector)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		if os.Geteuid() == 0 {
			for _, path := range []string{home, i.providers} {
				if err := os.Chown(path, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			asUser(t, cmd, nobody)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	command("up")
	if found := i.proxies(); len(found) != 3 {
		t.Errorf("%+v", found)
	}
	command("down")
}

func TestInterruptedUpLeavesTheServer(t *testing.T) {
	// Two samples find an exit and the third waits, so that up waits too.
	i := newInstallation(t, "  - {name: local, type: local, addresses: [127.94.7.10/31]}\n")
	cmd := exec.Command(binary(t), "--data-dir", i.dataDir, "up", "--providers", i.providers, "--reflector", i.reflector)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "up to wait for a Proxy", func() bool { return strings.Contains(out.String(), "waiting for Proxy") })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if want := fmt.Sprintf("the server goes on in the background (process %d)", i.pid()); i.pid() == 0 || !strings.Contains(out.String(), want) {
		t.Errorf("no %q in %q", want, &out)
	}
	i.must("down")
}

func TestTwoUpsAtOnceStartOneServer(t *testing.T) {
	i := newInstallation(t, localEntry)
	printed := make(chan string, 2)
	for range 2 {
		go func() {
			out, err := i.run("up", "--no-samples")
			printed <- fmt.Sprint(out, err)
		}()
	}
	both := <-printed + <-printed
	if strings.Count(both, "starting the server") != 1 || strings.Count(both, "the server runs already") != 1 {
		t.Errorf("printed: %s", both)
	}
	i.must("down")
}
