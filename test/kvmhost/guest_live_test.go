//go:build live

package kvmhost

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guest is a domain with a seed and an agent volume, such as the operator makes, but made by hand.
type guest struct {
	host    *Host
	name    string
	started time.Time
}

const domainXML = `<domain type='qemu'>
  <name>%[1]s</name><memory unit='MiB'>%[2]d</memory><vcpu>1</vcpu>
  %[3]s
  <features><acpi/><apic/></features><cpu mode='maximum'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='unsafe'/><source file='/var/lib/libvirt/images/%[1]s.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/var/lib/libvirt/images/%[1]s-agent.iso'/><target dev='vdb' bus='virtio'/><readonly/></disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/var/lib/libvirt/images/%[1]s-seed.iso'/><target dev='vdc' bus='virtio'/><readonly/></disk>
    <interface type='network'><source network='egress'/><model type='virtio'/></interface>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <serial type='file'><source path='/var/log/libvirt/%[1]s-console.log'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
`

const startAgent = `#!/bin/sh
set -e
for try in /dev/disk/by-label/EGRESS_AGENT "$(findfs LABEL=EGRESS_AGENT 2>/dev/null)"; do [ -b "$try" ] && device=$try; done
mkdir -p /run/agent-volume /usr/local/lib/egress-agent
mount -t iso9660 -o ro "$device" /run/agent-volume
cp /run/agent-volume/egress-agent /usr/local/lib/egress-agent/egress-agent
chmod 755 /usr/local/lib/egress-agent/egress-agent
umount /run/agent-volume
if [ -d /run/systemd/system ]; then
	systemd-run --quiet --unit=egress-agent /usr/local/lib/egress-agent/egress-agent "$1"
else
	(while :; do /usr/local/lib/egress-agent/egress-agent "$1"; sleep 1; done) >/dev/null 2>&1 &
fi
`

const (
	bios = `<os><type arch='x86_64' machine='q35'>hvm</type></os>`
	// libvirt's first choice on Debian is the firmware with enrolled keys, which boots signed loaders only
	efi = `<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type><firmware><feature enabled='no' name='secure-boot'/></firmware></os>`
)

// startGuest makes the volumes and the domain, and starts it.
func startGuest(t *testing.T, host *Host, name, image, firmware, agent, reflector string, files map[string]string) *guest {
	t.Helper()
	ctx := t.Context()
	pool := filepath.Join(host.Dir, "lib", "images")
	run(t, "cp", image, filepath.Join(pool, name+"-base.qcow2"))

	seed := t.TempDir()
	userData := fmt.Sprintf("#cloud-config\nwrite_files:\n  - path: /run/egress/start\n    permissions: \"0700\"\n    content: |\n%s"+
		"  - path: /run/egress/encoded\n    encoding: b64\n    content: %s\nruncmd:\n  - [/run/egress/start, \"%s\"]\n  - echo two words > /run/egress/string-item\n",
		indent(startAgent, "      "), base64.StdEncoding.EncodeToString([]byte("from base64")), reflector)
	seedFiles := map[string]string{"meta-data": "instance-id: " + name + "\nlocal-hostname: " + name + "\n", "user-data": userData}
	for file, content := range files {
		seedFiles[file] = content
	}
	for file, content := range seedFiles {
		if err := os.WriteFile(filepath.Join(seed, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	volume := t.TempDir()
	run(t, "cp", agent, filepath.Join(volume, "egress-agent"))
	run(t, "xorriso", "-as", "mkisofs", "-quiet", "-R", "-V", "cidata", "-o", filepath.Join(pool, name+"-seed.iso"), seed)
	run(t, "xorriso", "-as", "mkisofs", "-quiet", "-R", "-V", "EGRESS_AGENT", "-o", filepath.Join(pool, name+"-agent.iso"), volume)

	definition := filepath.Join(host.Dir, name+".xml")
	if err := os.WriteFile(definition, fmt.Appendf(nil, domainXML, name, 512, firmware), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pool-refresh", host.PoolName},
		{"vol-create-as", host.PoolName, name + ".qcow2", "2G", "--format", "qcow2", "--backing-vol", name + "-base.qcow2", "--backing-vol-format", "qcow2"},
		{"define", "--validate", definition},
		{"start", name},
	} {
		if _, err := host.Virsh(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	return &guest{host: host, name: name, started: time.Now()}
}

// address asks libvirt for the guest's IPv4 address; source is agent or lease.
func (g *guest) address(ctx context.Context, source string) string {
	out, err := g.host.Virsh(ctx, "domifaddr", g.name, "--source", source)
	if err != nil {
		return ""
	}
	for _, field := range strings.Fields(out) {
		if address, _, found := strings.Cut(field, "/"); found && strings.HasPrefix(address, "10.88.") {
			return address
		}
	}
	return ""
}

// run runs a command in the guest through its agent and returns its output.
func (g *guest) run(ctx context.Context, path string, args ...string) (string, error) {
	var started struct{ PID int }
	if err := g.ask(ctx, "guest-exec", map[string]any{"path": path, "arg": args, "capture-output": true}, &started); err != nil {
		return "", err
	}
	for {
		var status struct {
			Exited   bool
			ExitCode int
			OutData  []byte `json:"out-data"`
		}
		if err := g.ask(ctx, "guest-exec-status", map[string]any{"pid": started.PID}, &status); err != nil {
			return "", err
		}
		if status.Exited {
			if status.ExitCode != 0 {
				return "", fmt.Errorf("%s: exit code %d", path, status.ExitCode)
			}
			return string(status.OutData), nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (g *guest) ask(ctx context.Context, command string, arguments, answer any) error {
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	out, err := g.host.Virsh(ctx, "qemu-agent-command", g.name, string(request))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), &struct{ Return any }{answer})
}

// seenAs connects to the guest's agent and returns the address that the reflector saw.
func (g *guest) seenAs(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, "3128"))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	seen, err := io.ReadAll(connection)
	return string(seen), err
}

func (g *guest) state(ctx context.Context) string {
	out, err := g.host.Virsh(ctx, "domstate", g.name)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(out)
}

// processorTime is what the guest cost so far: unlike wall-clock time it tells little of the machine's other load.
func (g *guest) processorTime(ctx context.Context) string {
	out, err := g.host.Virsh(ctx, "dominfo", g.name)
	if err != nil {
		return err.Error()
	}
	for _, line := range strings.Split(out, "\n") {
		if time, found := strings.CutPrefix(line, "CPU time:"); found {
			return strings.TrimSpace(time)
		}
	}
	return "none"
}

// await polls until the condition holds, and fails the test, with the guest's console, when it does not for long: a
// step of an emulated guest takes seconds on a quiet machine, and minutes on a busy one.
func (g *guest) await(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	const limit = 8 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !holds(ctx) {
		select {
		case <-ctx.Done():
			console, _ := os.ReadFile(filepath.Join(g.host.Dir, "log", g.name+"-console.log"))
			t.Fatalf("%s: %s did not happen within %s; its console:\n%s", g.name, what, limit, console)
		case <-time.After(100 * time.Millisecond):
		}
	}
	since := time.Since(g.started).Round(100 * time.Millisecond)
	t.Logf("%s: %s after %s, %s of processor time", g.name, what, since, g.processorTime(t.Context()))
}

// reflector tells each client the address that it came from.
func reflector(t *testing.T, host *Host) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host.Outside, "0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			client, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
			io.WriteString(connection, client)
			connection.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func buildAgent(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "egress-agent")
	command := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "./testdata/agent")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}
