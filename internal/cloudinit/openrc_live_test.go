// SPDX-License-Identifier: Apache-2.0

//go:build live

package cloudinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// channel is the host's end of the guest agent's channel: a terminal stands in for the virtual serial port.
type channel struct {
	master *os.File
	// guest is the path of the guest's end on this machine.
	guest string
}

func openChannel(t *testing.T) channel {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.SetNonblock(fd, true); err != nil { // Fd made it block
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Iflag, settings.Oflag, settings.Lflag = 0, 0, 0 // bytes as they are
	settings.Cc[unix.VMIN], settings.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
	return channel{master, "/dev/pts/" + strconv.Itoa(number)}
}

// ping asks the guest agent whether it is there.
func (c channel) ping(t *testing.T) bool {
	t.Helper()
	poll, err := unix.Dup(int(c.master.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	end := os.NewFile(uintptr(poll), "channel")
	defer end.Close()
	if err := unix.SetNonblock(poll, true); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(poll, []byte(`{"execute":"guest-ping"}`+"\n")); err != nil {
		return false
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		answer := make([]byte, 4096)
		if n, err := unix.Read(poll, answer); err == nil && strings.Contains(string(answer[:n]), `"return"`) {
			return true
		}
	}
	return false
}

const openrcMounts = `: >"$root/dev/virtio-ports/org.qemu.guest_agent.0"
mount --bind "$CHANNEL" "$root/dev/virtio-ports/org.qemu.guest_agent.0"
mkdir -p "$root/agent-volume"
cp "$AGENT" "$root/agent-volume/egress-agent"
mkdir -p "$root/test-tools"
printf '#!/bin/sh\necho /agent-volume\n' >"$root/test-tools/findfs"
printf '#!/bin/sh\nfor at; do :; done\nexec /bin/mount --bind /agent-volume "$at"\n' >"$root/test-tools/mount"
chmod 0755 "$root"/test-tools/*`

// TestScriptsUnderOpenRC runs the scripts of a seed in a Debian whose services OpenRC keeps: the real OpenRC, guest agent and agent. Only the
// mounting of the agent's volume is made up, for a tree has no disks.
func TestScriptsUnderOpenRC(t *testing.T) {
	all := trees(t)
	spec := agentSpec()
	spec.InstallGuestAgent = true
	spec.AgentConfig = []byte(`{"version":1,"listenPort":3128,"controlKey":"` + strings.Repeat("A", 42) + `E=","credentials":[{"username":"u","password":"p"}]}`)
	scripts := map[string]string{}
	for _, part := range partsOf(t, contents(t, spec)["user-data"]) {
		scripts[part.Name] = part.Content
	}
	agent := filepath.Join(t.TempDir(), "egress-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", agent, "../../cmd/egress-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line := openChannel(t)
	t.Setenv("CHANNEL", line.guest)
	t.Setenv("AGENT", agent)
	tr := grow(t, all.OpenRC, openrcMounts)
	for name, content := range scripts {
		tr.write("/scripts/"+name, []byte(content), 0o700)
	}
	run := func(name string) (string, error) {
		return tr.try("sh", "-c", "PATH=/test-tools:$PATH exec /scripts/"+name)
	}

	t.Run("L10: the guest agent starts under Debian's OpenRC, and without any service manager the console says so", func(t *testing.T) {
		if out, err := run("30-egress-guest-agent"); err == nil || !strings.Contains(tr.read("/dev/console"), "qemu-guest-agent: neither systemd nor OpenRC runs here") {
			t.Errorf("%v\n%s\nconsole: %s", err, out, tr.read("/dev/console"))
		}
		boot(t, tr)
		for range 2 { // again without harm
			if out, err := run("30-egress-guest-agent"); err != nil {
				t.Fatalf("%v\n%s\nconsole: %s", err, out, tr.read("/dev/console"))
			}
		}
		await(t, "an answer of the guest agent", func() bool { return line.ping(t) })
		if out := tr.run("rc-update", "show", "default"); !strings.Contains(out, "qemu-guest-agent") {
			t.Errorf("the next boot does not start it:\n%s", out)
		}
	})
	t.Run("the agent starts under OpenRC, and again when it dies", func(t *testing.T) {
		if out, err := run("20-egress-agent"); err != nil {
			t.Fatalf("%v\n%s\nconsole: %s", err, out, tr.read("/dev/console"))
		}
		first := agentPID(t, tr, "")
		tr.run("sh", "-c", "kill -9 "+first)
		agentPID(t, tr, first)
		if out := tr.run("rc-update", "show", "default"); !strings.Contains(out, "egress-agent") {
			t.Errorf("the next boot does not start it:\n%s", out)
		}
	})
}

// boot goes through OpenRC's runlevels, as its init does.
func boot(t *testing.T, tr *tree) {
	t.Helper()
	for _, level := range []string{"sysinit", "boot", "default"} {
		out, err := tr.try("openrc", level)
		t.Logf("openrc %s: %v\n%s", level, err, out) // services that need hardware may fail here
	}
	if _, err := os.Stat(tr.path("/run/openrc")); err != nil {
		t.Fatal("OpenRC did not boot: ", err)
	}
}

// agentPID waits for the agent to listen, as another process than before.
func agentPID(t *testing.T, tr *tree, before string) (pid string) {
	t.Helper()
	await(t, "the agent serves", func() bool {
		out, err := tr.try("sh", "-c", `for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/local/bin/egress-agent ] && echo "${p#/proc/}"; done; exit 0`)
		for _, one := range strings.Fields(out) {
			if err == nil && one != before {
				pid = one
			}
		}
		sockets, _ := tr.try("cat", "/proc/net/tcp", "/proc/net/tcp6")
		return pid != "" && strings.Contains(sockets, ":0C38 ")
	})
	return pid
}
