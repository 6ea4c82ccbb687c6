// SPDX-License-Identifier: Apache-2.0

//go:build live

package link

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
)

// TestKnownHosts has the lines of docs/links.md, as OpenSSH's own tools write them, against a real sshd.
func TestKnownHosts(t *testing.T) {
	h := up(t)
	dir := t.TempDir()
	name, _, _ := strings.Cut(h.SSHAddress, ":")
	key := func(kind string) string {
		return strings.Join(strings.Fields(h.must("cat", "/etc/ssh/ssh_host_"+kind+"_key.pub"))[:2], " ")
	}
	hostKey, rsa := key("ed25519"), key("rsa")
	keygen(t, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "ca"))
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pub"))
	if err != nil {
		t.Fatal(err)
	}
	authority := strings.Join(strings.Fields(string(ca))[:2], " ")
	public := filepath.Join(h.Dir, "ssh", "ssh_host_ed25519_key.pub")
	keygen(t, "-q", "-s", filepath.Join(dir, "ca"), "-I", "host", "-h", "-n", name, public)

	h.sshd("HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub", "ListenAddress "+name+":2222")
	defer h.sshd()
	for _, c := range []struct {
		name, lines, port, refusal string
		hash                       bool
	}{
		{name: "a plain line", lines: name + " " + hostKey, port: "22"},
		{name: "only its RSA key", lines: name + " " + rsa, port: "22"},
		{name: "a hashed line", lines: name + " " + hostKey, port: "22", hash: true},
		{name: "another port", lines: "[" + name + "]:2222 " + hostKey, port: "2222"},
		{name: "another port, hashed", lines: "[" + name + "]:2222 " + hostKey, port: "2222", hash: true},
		{name: "a line without the port", lines: name + " " + hostKey, port: "2222", refusal: "no entry \"[" + name + "]:2222\""},
		{name: "an authority", lines: "@cert-authority " + name + " " + authority, port: "22"},
		{name: "an authority by a pattern", lines: "@cert-authority 10.77.* " + authority, port: "22"},
		{name: "a revoked key", lines: name + " " + hostKey + "\n@revoked * " + hostKey, port: "22", refusal: "is revoked by"},
		{name: "a revoked key under an authority", lines: "@cert-authority " + name + " " + authority + "\n@revoked * " + hostKey, port: "22", refusal: "is revoked"},
		{name: "a revoked authority", lines: "@cert-authority " + name + " " + authority + "\n@revoked * " + authority, port: "22", refusal: "is revoked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "known_hosts")
			if err := os.WriteFile(file, []byte(c.lines+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.hash {
				keygen(t, "-H", "-f", file)
			}
			target := h.target()
			target.Address, target.KnownHosts, target.HostKeyAlias = name+":"+c.port, file, ""
			if c.refusal == "" {
				works(t, target)
				return
			}
			_, err := link.Dial(t.Context(), target)
			var auth *link.AuthError
			if !errors.As(err, &auth) || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

func keygen(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", args...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v\n%s", args, err, out)
	}
}

func TestLibvirtOfThisMachine(t *testing.T) {
	up(t)
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "pids", "egress-host"+strconv.Itoa(linkHost)).Output()
	pid, _, _ := strings.Cut(string(out), "\n")
	if err != nil || pid == "" {
		t.Fatalf("no process of the host: %v", err)
	}
	works(t, link.Target{Local: true, Socket: "/proc/" + pid + "/root/run/libvirt/libvirt-sock"})
}
