// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package guest proves what needs a guest with its own systemd and cloud-init: every kind of vendor data, all parts of a seed together, an
// address of a pool in a network without DHCP for it, and new credentials without a reboot.
package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guestHost is a host of these tests' own.
const guestHost = 53

// Deadlines, from the steps that they bound: a fetch and an upload of a small image, and a boot without KVM beside others on a busy machine.
const (
	madeWithin   = 3 * time.Minute
	bootedWithin = 8 * time.Minute
	sweepTime    = time.Minute
)

const hostName, image, port = "host", "cloud", 3128

// guest is one instance, made by a provider of its own.
type guest struct {
	*libvirt.Provider
	t     *testing.T
	host  *kvmhost.Host
	names libvirt.Names
	spec  provider.InstanceSpec
}

func entryOn(h *kvmhost.Host, cloud string) config.Entry {
	reserve := int64(0)
	return config.Entry{
		Name: "kvm2-guests", Type: config.TypeKVM2, AllowEmulation: true, DefaultImage: image,
		Hosts:         []config.Host{{Name: hostName, Address: h.SSHAddress, User: h.User, Socket: h.Socket, Pool: h.PoolName, Network: h.Network}},
		Credentials:   config.SSHCredentials{PrivateKeyFile: h.KeyFile, KnownHostsFile: h.KnownHostsFile},
		Images:        map[string]config.Image{image: {URL: "file://" + cloud, Arch: config.ArchX8664, Firmware: config.FirmwareBIOS}},
		MaxImageBytes: 4 << 30, PoolReserveGiB: &reserve,
	}
}

// realAgent builds the agent.
func realAgent(t *testing.T) libvirt.AgentSource {
	t.Helper()
	path := filepath.Join(t.TempDir(), "egress-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w -X main.version=v0.0.0-live", "-o", path, "../../cmd/egress-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return func(string) (libvirt.AgentFile, error) {
		return libvirt.AgentFile{Version: "v0.0.0-live", SHA256: hex.EncodeToString(sum[:]), Read: func() ([]byte, error) { return content, nil }}, nil
	}
}

// boot makes an instance that runs, and removes it with all that was made for it at the end of the test.
func boot(t *testing.T, h *kvmhost.Host, cloud string, agent libvirt.AgentSource, change func(*config.Entry, *provider.InstanceSpec)) *guest {
	t.Helper()
	cluster := libvirttest.FreshCluster()
	names, err := libvirt.NewNames(cluster)
	if err != nil {
		t.Fatal(err)
	}
	entry, spec := entryOn(h, cloud), libvirttest.Spec(hostName, uuid.NewString(), image)
	spec.MemoryMiB, spec.Port = 384, port
	change(&entry, &spec)
	p, err := libvirt.New(libvirt.Options{Cluster: cluster, Entry: entry, Backend: kvm2.Backends(entry.Credentials), Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	g := &guest{p, t, h, names, spec}
	t.Cleanup(g.wipe)
	ctx, cancel := context.WithTimeout(t.Context(), madeWithin)
	defer cancel()
	for {
		_, err := p.Create(ctx, spec)
		if err == nil {
			return g
		}
		if provider.KindOf(err) != provider.InProgress || !rest(ctx) {
			t.Fatal(err)
		}
	}
}

// wipe removes what the cluster has on the host, by prefix.
func (g *guest) wipe() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.t.Context()), sweepTime)
	defer cancel()
	prefix := libvirt.Prefix + "-" + g.names.Cluster() + "-"
	domain := g.names.Domain(g.spec.UID)
	_, _ = g.host.Virsh(ctx, "destroy", domain) // it may not run
	_, _ = g.host.Virsh(ctx, "undefine", domain)
	_, _ = g.host.Virsh(ctx, "pool-refresh", g.host.PoolName)
	out, err := g.host.Virsh(ctx, "vol-list", g.host.PoolName)
	if err != nil {
		g.t.Errorf("what the test made is left: %v", err)
	}
	for _, word := range strings.Fields(out) {
		if !strings.HasPrefix(word, prefix) {
			continue
		}
		if _, err := g.host.Virsh(ctx, "vol-delete", word, "--pool", g.host.PoolName); err != nil {
			g.t.Errorf("a volume is left: %v", err)
		}
	}
}

// sh runs a shell command in the guest, through its guest agent, and returns what it prints.
func (g *guest) sh(ctx context.Context, command string) (string, error) {
	var started struct{ PID int }
	if err := g.ask(ctx, "guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", command}, "capture-output": true}, &started); err != nil {
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
				return string(status.OutData), fmt.Errorf("%s: exit code %d", command, status.ExitCode)
			}
			return string(status.OutData), nil
		}
		if !rest(ctx) {
			return "", ctx.Err()
		}
	}
}

func (g *guest) ask(ctx context.Context, command string, arguments, answer any) error {
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	out, err := g.host.Virsh(ctx, "qemu-agent-command", g.names.Domain(g.spec.UID), string(request))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), &struct{ Return any }{answer})
}

// await polls until something is so.
func (g *guest) await(what string, is func(ctx context.Context) bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), bootedWithin)
	defer cancel()
	for !is(ctx) {
		if !rest(ctx) {
			out, _ := g.sh(context.WithoutCancel(ctx), "tail -n 40 /var/log/cloud-init-output.log; grep -i warn /var/log/cloud-init.log | tail -n 20")
			g.t.Fatalf("never: %s; the guest says:\n%s", what, out)
		}
	}
}

// address waits until the guest has one.
func (g *guest) address() string {
	g.t.Helper()
	var found string
	g.await("an address", func(ctx context.Context) bool {
		i, err := g.Get(ctx, g.spec.InstanceRef)
		if err == nil && len(i.Addresses) > 0 {
			found = i.Addresses[0].String()
		}
		return found != ""
	})
	return found
}

// settled waits until cloud-init has done all that it does at a first boot, and returns the files that the test's data left.
func (g *guest) settled(marks ...string) {
	g.t.Helper()
	g.await("cloud-init has ended", func(ctx context.Context) bool {
		out, err := g.sh(ctx, "cat /run/cloud-init/result.json")
		return err == nil && strings.Contains(out, "datasource")
	})
	out, err := g.sh(g.t.Context(), "cat /run/cloud-init/result.json; ls /run/egress-test")
	if err != nil || !strings.Contains(strings.ReplaceAll(out, " ", ""), `"errors":[]`) {
		g.t.Errorf("cloud-init: %v\n%s", err, out)
	}
	for _, mark := range marks {
		if !strings.Contains(out, mark+"\n") {
			g.t.Errorf("nothing of %s ran: there is\n%s", mark, out)
		}
	}
}

func rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(250 * time.Millisecond):
		return true
	}
}
