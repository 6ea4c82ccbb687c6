// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shells that a guest may have: its sh (dash on Debian), and the one of the smallest guests.
var shells = [][]string{{"sh"}, {"busybox", "sh"}}

// fakes stand before the real tools: mount copies a directory, sleep hardly waits, and the service managers write down what they are asked.
var fakes = map[string]string{
	"findfs":     `[ -d "$VOLUME" ] && echo "$VOLUME"`,
	"blkid":      `exit 2`,
	"mount":      `for last; do :; done; cp "$VOLUME"/* "$last"/`,
	"umount":     `rm -f "$1"/*`,
	"sleep":      `exec /bin/sleep 0.02`,
	"sync":       `:`,
	"systemctl":  `echo "systemctl $*" >>"$CALLS"`,
	"rc-update":  `echo "rc-update $*" >>"$CALLS"`,
	"rc-service": `echo "rc-service $*" >>"$CALLS"`,
}

// guest is a directory that looks like a guest's root to the script.
type guest struct {
	t                   *testing.T
	shell               []string
	root, volume, calls string
	prelude             string
	environment         []string
}

func forEachShell(t *testing.T, test func(t *testing.T, g *guest)) {
	for _, shell := range shells {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skipf("%s is not installed: apt-get install busybox-static", shell[0])
			}
			test(t, newGuest(t, shell))
		})
	}
}

func newGuest(t *testing.T, shell []string) *guest {
	base := t.TempDir()
	g := &guest{t: t, shell: shell, root: filepath.Join(base, "root"), volume: filepath.Join(base, "volume"), calls: filepath.Join(base, "calls")}
	tools := filepath.Join(base, "tools")
	for name, body := range fakes {
		path := filepath.Join(tools, name)
		g.write(path, "#!/bin/sh\n"+body+"\n")
		if !strings.Contains(name, "-") { // busybox sh takes its own applets before those in PATH, but functions before both
			g.prelude += name + "() { " + path + ` "$@"; }; `
		}
	}
	g.write(filepath.Join(g.root, "dev/console"), "")
	g.write(filepath.Join(g.root, "etc/egress-agent/config.json"), agentConfig)
	for _, dir := range []string{"run", "etc/init.d"} {
		if err := os.MkdirAll(filepath.Join(g.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(g.root, "usr/local/lib/egress-agent"), os.DirFS("guest")); err != nil {
		t.Fatal(err)
	}
	g.environment = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "VOLUME="+g.volume, "CALLS="+g.calls)
	return g
}

func (g *guest) write(path, content string) {
	g.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) read(path string) string {
	data, _ := os.ReadFile(filepath.Join(g.root, path))
	return string(data)
}

func (g *guest) mkdir(path string) {
	g.t.Helper()
	if err := os.MkdirAll(filepath.Join(g.root, path), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

// install runs the script and returns its exit code and what the service managers were asked since the last run.
func (g *guest) install() (code int, calls string) {
	g.t.Helper()
	_ = os.Remove(g.calls)
	args := append(append([]string{}, g.shell[1:]...), "-c", g.prelude+". guest/install.sh", "install.sh", g.root)
	cmd := exec.CommandContext(g.t.Context(), g.shell[0], args...)
	cmd.Env = g.environment
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		g.t.Fatal(err)
	}
	if g.t.Failed() || testing.Verbose() {
		g.t.Logf("%s", out)
	}
	data, _ := os.ReadFile(g.calls)
	return cmd.ProcessState.ExitCode(), string(data)
}

func (g *guest) wants(code, wantCode int, calls, wantCalls string) {
	g.t.Helper()
	if code != wantCode || calls != wantCalls {
		g.t.Errorf("exit %d and calls %q, want %d and %q", code, calls, wantCode, wantCalls)
	}
}

func TestScriptsParse(t *testing.T) {
	for _, name := range []string{"guest/install.sh", "guest/loop.sh", "guest/egress-agent.openrc"} {
		forEachShell(t, func(t *testing.T, g *guest) {
			args := append(append([]string{}, g.shell[1:]...), "-n", name)
			if out, err := exec.CommandContext(t.Context(), g.shell[0], args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		})
	}
}

func TestInstallUnderSystemd(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		g.mkdir("run/systemd/system")
		g.write(filepath.Join(g.volume, "egress-agent"), "agent one")
		prepare := "systemctl daemon-reload\nsystemctl enable egress-agent.service\n"

		code, calls := g.install()
		g.wants(code, 0, calls, prepare+"systemctl restart egress-agent.service\n")
		info, err := os.Stat(filepath.Join(g.root, "usr/local/bin/egress-agent"))
		if err != nil || info.Mode() != 0o755 || g.read("usr/local/bin/egress-agent") != "agent one" {
			t.Errorf("agent: %v, %v", info, err)
		}
		if !strings.Contains(g.read("etc/systemd/system/egress-agent.service"), "Restart=always") {
			t.Error("no unit")
		}
		if _, err := os.Stat(filepath.Join(g.root, "run/egress-agent-volume")); !os.IsNotExist(err) {
			t.Errorf("the volume is still mounted: %v", err)
		}

		code, calls = g.install()
		g.wants(code, 0, calls, prepare+"systemctl start egress-agent.service\n")

		g.write(filepath.Join(g.volume, "egress-agent"), "agent two")
		code, calls = g.install()
		g.wants(code, 0, calls, prepare+"systemctl restart egress-agent.service\n")
		if g.read("usr/local/bin/egress-agent") != "agent two" {
			t.Error("the new agent was not put in place")
		}
	})
}

func TestInstallUnderOpenRC(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		g.mkdir("run/openrc")
		g.write(filepath.Join(g.volume, "egress-agent"), "agent")
		code, calls := g.install()
		g.wants(code, 0, calls, "rc-update add egress-agent default\nrc-service egress-agent restart\n")
		code, calls = g.install()
		g.wants(code, 0, calls, "rc-update add egress-agent default\nrc-service --ifstopped egress-agent start\n")
		if !strings.HasPrefix(g.read("etc/init.d/egress-agent"), "#!/sbin/openrc-run\n") {
			t.Error("no OpenRC service")
		}
	})
}

func TestMissingVolumeIsSaidOnTheConsole(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		g.mkdir("run/systemd/system")
		code, calls := g.install()
		g.wants(code, 1, calls, "")
		if console := g.read("dev/console"); !strings.Contains(console, "egress-agent: no volume labelled EGRESS_AGENT") {
			t.Errorf("the console shows %q", console)
		}
		// An agent that is there already serves on.
		g.write(filepath.Join(g.root, "usr/local/bin/egress-agent"), "old agent")
		code, calls = g.install()
		g.wants(code, 0, calls, "systemctl daemon-reload\nsystemctl enable egress-agent.service\nsystemctl restart egress-agent.service\n")
	})
}

func TestVolumeIsFoundByUdevsLink(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		g.mkdir("run/systemd/system")
		device := g.volume + "-device"
		g.write(filepath.Join(device, "egress-agent"), "agent")
		g.mkdir("dev/disk/by-label")
		if err := os.Symlink(device, filepath.Join(g.root, "dev/disk/by-label/EGRESS_AGENT")); err != nil {
			t.Fatal(err)
		}
		g.write(filepath.Join(filepath.Dir(g.root), "tools/mount"), "#!/bin/sh\nfor last; do :; done; cp \"$5\"/* \"$last\"/\n")
		if code, _ := g.install(); code != 0 || g.read("usr/local/bin/egress-agent") != "agent" {
			t.Errorf("exit %d, agent %q", code, g.read("usr/local/bin/egress-agent"))
		}
	})
}

func TestLoopRestartsTheAgent(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		started := filepath.Join(g.root, "started")
		// The first agent ends at once, as one that crashes; the second stays until it is killed.
		g.write(filepath.Join(g.volume, "egress-agent"), `#!/bin/sh
echo "one $*" >>`+started+`
[ "$(grep -c one `+started+`)" -lt 3 ] && exit 1
exec /bin/sleep 600
`)
		t.Cleanup(g.endLoop)
		if code, _ := g.install(); code != 0 {
			t.Fatalf("exit %d", code)
		}
		line := "one --config " + g.root + "/etc/egress-agent/config.json\n"
		g.await("three starts", func() bool { return g.read("started") == strings.Repeat(line, 3) })
		if boot := g.read("var/lib/cloud/scripts/per-boot/egress-agent"); !strings.Contains(boot, "exec /bin/sh /usr/local/lib/egress-agent/install.sh") {
			t.Errorf("script of each boot: %q", boot)
		}
		if console := g.read("dev/console"); !strings.Contains(console, "neither systemd nor OpenRC") {
			t.Errorf("the console shows %q", console)
		}

		loop := g.read("run/egress-agent/loop")
		if code, _ := g.install(); code != 0 || g.read("run/egress-agent/loop") != loop || g.read("started") != strings.Repeat(line, 3) {
			t.Errorf("a second run changed something: exit %d", code)
		}
		g.write(filepath.Join(g.volume, "egress-agent"), "#!/bin/sh\necho two >>"+started+"\nexec /bin/sleep 600\n")
		if code, _ := g.install(); code != 0 {
			t.Errorf("exit %d", code)
		}
		g.await("the new agent", func() bool { return strings.HasSuffix(g.read("started"), "two\n") })
		if g.read("run/egress-agent/loop") != loop {
			t.Error("a second loop was started")
		}
	})
}

// endLoop ends the loop and its agent, which are nobody's children any more.
func (g *guest) endLoop() {
	for _, name := range []string{"loop", "agent"} {
		if pid, err := strconv.Atoi(strings.TrimSpace(g.read("run/egress-agent/" + name))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (g *guest) await(what string, done func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("no sign of %s; started: %q, console: %q", what, g.read("started"), g.read("dev/console"))
		}
	}
}
