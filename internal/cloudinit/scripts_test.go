// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// basics are the machine's own tools that the scripts need. Nothing else of this machine is in their PATH: its package manager least of all.
var basics = []string{"cat", "chmod", "cp", "mv", "sed", "stat", "touch"}

// only leaves the script nothing but the fakes and the basics.
func (g *guest) only() {
	g.t.Helper()
	for _, name := range basics {
		path, err := exec.LookPath(name)
		if err != nil {
			g.t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(g.tools(), name)); err != nil {
			g.t.Fatal(err)
		}
	}
	shell, err := exec.LookPath(g.shell[0])
	if err != nil {
		g.t.Fatal(err)
	}
	g.shell = append([]string{shell}, g.shell[1:]...)
	g.environment = []string{"PATH=" + g.tools(), "CALLS=" + g.calls, "TOOLS=" + g.tools(), "EGRESS_ROOT=" + g.root}
}

func (g *guest) tools() string { return filepath.Join(filepath.Dir(g.root), "tools") }

// fake adds a tool that writes its call down, and then does as the body says.
func (g *guest) fake(name, body string) {
	g.write(filepath.Join(g.tools(), name), "#!"+shellPath(g.t)+"\necho \""+name+" $*\" >>\"$CALLS\"\n"+body+"\n")
}

func shellPath(t *testing.T) string {
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a script of guest/, as rendered for a Proxy with this UID.
func (g *guest) run(content []byte) (code int, calls string) {
	g.t.Helper()
	_ = os.Remove(g.calls)
	path := filepath.Join(filepath.Dir(g.root), "script")
	g.write(path, string(content))
	args := append(append([]string{}, g.shell[1:]...), "-c", g.prelude+". "+path)
	cmd := exec.CommandContext(g.t.Context(), g.shell[0], args...)
	cmd.Env = g.environment
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		g.t.Fatal(err)
	}
	g.t.Logf("%s", out)
	data, _ := os.ReadFile(g.calls)
	return cmd.ProcessState.ExitCode(), string(data)
}

func rendered(t *testing.T) ours {
	t.Helper()
	content, err := guestParts(agentSpec())
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestGuestAgentIsInstalledByWhateverTheGuestHas(t *testing.T) {
	const started = "rc-update add qemu-guest-agent default\nrc-service --ifstopped qemu-guest-agent start\n"
	for manager, want := range map[string]string{
		"":         "",
		"apt-get":  "apt-get -q update\napt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends qemu-guest-agent\n",
		"dnf":      "dnf -q -y install qemu-guest-agent\n",
		"microdnf": "microdnf -y install qemu-guest-agent\n",
		"yum":      "yum -q -y install qemu-guest-agent\n",
		"zypper":   "zypper --non-interactive install qemu-guest-agent\n",
		"apk":      "apk add qemu-guest-agent\n",
		"pacman":   "pacman -Sy --noconfirm --needed qemu-guest-agent\n",
	} {
		t.Run("by "+manager, func(t *testing.T) {
			forEachShell(t, func(t *testing.T, g *guest) {
				g.only()
				g.mkdir("run/openrc")
				if manager == "" { // the image has it
					g.fake("qemu-ga", "")
				} else {
					g.fake(manager, `case "$*" in *qemu-guest-agent*) { echo "#!/bin/sh" >"$TOOLS/qemu-ga"; chmod 0755 "$TOOLS/qemu-ga"; } ;; esac`)
				}
				code, calls := g.run(rendered(t).guestAgent)
				g.wants(code, 0, calls, want+started)
				if console := g.read("dev/console"); console != "" {
					t.Errorf("the console shows %q", console)
				}
			})
		})
	}
}

func TestGuestAgentUnderSystemd(t *testing.T) {
	forEachShell(t, func(t *testing.T, g *guest) {
		g.only()
		g.mkdir("run/systemd/system")
		g.fake("qemu-ga", "")
		// Debian's unit cannot be enabled: udev starts it.
		g.write(filepath.Join(g.tools(), "systemctl"), "#!"+shellPath(t)+"\necho \"systemctl $*\" >>\"$CALLS\"\n[ \"$1\" != enable ]\n")
		code, calls := g.run(rendered(t).guestAgent)
		g.wants(code, 0, calls, "systemctl daemon-reload\nsystemctl enable qemu-guest-agent.service\nsystemctl start qemu-guest-agent.service\n")
	})
}

func TestGuestAgentThatCannotBeHadIsSaidOnTheConsole(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(g *guest)
		says    string
		calls   int
	}{
		"no package manager": {func(g *guest) { g.mkdir("run/openrc") }, "no package manager is known here", 0},
		"no mirror": {func(g *guest) {
			g.mkdir("run/openrc")
			g.fake("apk", "exit 1")
		}, "is a package mirror reached from here", 5},
		"neither systemd nor OpenRC": {func(g *guest) { g.fake("qemu-ga", "") }, "neither systemd nor OpenRC runs here", 0},
		"service does not start": {func(g *guest) {
			g.mkdir("run/openrc")
			g.fake("qemu-ga", "")
			g.fake("rc-service", "exit 1")
		}, "does the guest have the channel", -1},
	} {
		t.Run(name, func(t *testing.T) {
			forEachShell(t, func(t *testing.T, g *guest) {
				g.only()
				test.prepare(g)
				code, calls := g.run(rendered(t).guestAgent)
				if code == 0 || test.calls >= 0 && strings.Count(calls, "\n") != test.calls {
					t.Errorf("exit %d, calls %q", code, calls)
				}
				if console := g.read("dev/console"); !strings.Contains(console, "qemu-guest-agent: ") || !strings.Contains(console, test.says) {
					t.Errorf("the console shows %q, and not %q", console, test.says)
				}
			})
		})
	}
}

func TestMachineIDOfTheImageIsReplaced(t *testing.T) {
	const baked, own = "0123456789abcdef0123456789abcdef", "3f2504e04f8911d39a0c0305e82c3301"
	booted := time.Now().Add(-time.Minute)
	for name, test := range map[string]struct {
		machineID string
		written   time.Time
		dbus      bool
		systemd   bool
		want      string
		calls     string
	}{
		"baked into the image":      {baked, booted.Add(-24 * time.Hour), true, true, own, "systemctl try-restart systemd-networkd.service\n"},
		"baked, without systemd":    {baked, booted.Add(-24 * time.Hour), false, false, own, ""},
		"made at this boot":         {baked, booted.Add(time.Second), false, true, baked, ""},
		"made before the clock set": {baked, booted.Add(-10 * time.Minute), false, true, baked, ""},
		"its own":                   {own, booted.Add(-24 * time.Hour), false, true, own, ""},
		"empty":                     {"", booted.Add(-24 * time.Hour), false, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			forEachShell(t, func(t *testing.T, g *guest) {
				g.only()
				if test.systemd {
					g.mkdir("run/systemd/system")
				}
				g.write(filepath.Join(g.root, "proc/stat"), "cpu 1 2 3\nbtime "+strconv.FormatInt(booted.Unix(), 10)+"\nprocesses 9\n")
				places := []string{"etc/machine-id"}
				if test.dbus {
					places = append(places, "var/lib/dbus/machine-id")
				}
				for _, place := range places {
					content := test.machineID
					if content != "" {
						content += "\n"
					}
					g.write(filepath.Join(g.root, place), content)
					if err := os.Chtimes(filepath.Join(g.root, place), test.written, test.written); err != nil {
						t.Fatal(err)
					}
				}
				code, calls := g.run(rendered(t).machineID)
				g.wants(code, 0, calls, test.calls)
				for _, place := range places {
					if got := strings.TrimSpace(g.read(place)); got != test.want {
						t.Errorf("%s is %q, want %q", place, got, test.want)
					}
				}
			})
		})
	}
}
