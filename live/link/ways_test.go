// SPDX-License-Identifier: Apache-2.0

//go:build live

package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
)

const helper, netcat = "/usr/bin/virt-ssh-helper", "/usr/bin/nc"

func TestWays(t *testing.T) {
	h := up(t)
	const refuse = "AllowStreamLocalForwarding no"
	t.Run("sshd forwards by default", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd()
		if got := works(t, h.target()).Via(); got != "socket forwarding" {
			t.Errorf("via %s", got)
		}
	})
	for _, setting := range []string{refuse, "DisableForwarding yes"} {
		t.Run("X1: "+setting+": virt-ssh-helper carries the link", func(t *testing.T) {
			h := &host{h.Host, t}
			h.sshd(setting)
			if got := works(t, h.target()).Via(); got != "virt-ssh-helper" {
				t.Errorf("via %s", got)
			}
		})
	}
	t.Run("X1: without virt-ssh-helper, nc -U carries it, and ends with it", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd(refuse)
		h.hide(helper)
		l := works(t, h.target())
		if !strings.HasPrefix(l.Via(), "nc ") {
			t.Errorf("via %s", l.Via())
		}
		l.Close()
		eventually(t, "nc ends", func() bool {
			out, err := h.Exec(t.Context(), "sh", "-c", "cat /proc/[0-9]*/comm | grep -c '^nc' || true")
			return err == nil && strings.TrimSpace(out) == "0"
		})
	})
	t.Run("X1: where none works, the error names the sshd setting and the packages", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd(refuse)
		h.hide(helper, netcat, "/usr/bin/nc.openbsd")
		_, err := link.Dial(t.Context(), h.target())
		var setup *link.SetupError
		for _, want := range []string{"AllowStreamLocalForwarding yes", "virt-ssh-helper", "netcat-openbsd"} {
			if !errors.As(err, &setup) || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %T %v", want, err, err)
			}
		}
	})
	t.Run("X2: another socket's path", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd()
		h.must("ln", "-sf", "libvirt-sock", "/run/libvirt/virtqemud-sock")
		defer h.must("rm", "-f", "/run/libvirt/virtqemud-sock")
		target := h.target()
		target.Socket = "/run/libvirt/virtqemud-sock"
		works(t, target)
		target.Socket = "/run/libvirt/none"
		_, err := link.Dial(t.Context(), target)
		var setup *link.SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), "/var/run/libvirt/virtqemud-sock") {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("X2: a jump host", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd("ListenAddress 127.0.0.1:2222")
		target := h.target()
		target.Address, target.Jumps = "127.0.0.1:2222", []link.Hop{h.hop(h.SSHAddress)}
		works(t, target)
		h.sshd("ListenAddress 127.0.0.1:2222", "AllowTcpForwarding no")
		_, err := link.Dial(t.Context(), target)
		var setup *link.SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), "AllowTcpForwarding yes") {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("an sshd that has too many connections is not taken for one that is down", func(t *testing.T) {
		h := &host{h.Host, t}
		h.sshd("MaxStartups 1:100:1", "LoginGraceTime 60")
		hold := dialTCP(t, h.SSHAddress)
		defer hold.Close()
		_, err := link.Dial(t.Context(), h.target())
		var throttled *link.ThrottledError
		if !errors.As(err, &throttled) {
			t.Errorf("got %T %v", err, err)
		}
		t.Log(err)
	})
	(&host{h.Host, t}).sshd()
}

func TestUsers(t *testing.T) {
	h := up(t)
	const user, group = "kvmuser", "kvmadmins"
	for line, file := range map[string]string{user + ":x:61000:61000::/:/bin/sh": "passwd", user + ":x:61000:": "group", group + ":x:61001:": "group"} {
		name, _, _ := strings.Cut(line, ":") // a host that stayed up has them
		h.must("sh", "-c", "grep -q ^"+name+": /etc/"+file+" || echo "+line+" >>/etc/"+file)
	}
	h.must("sh", "-c", fmt.Sprintf("sed 's/^%s:.*/%s:x:61001:/' /etc/group >/run/group; cat /run/group >/etc/group", group, group))
	h.must("sh", "-c", "cat /root/.ssh/authorized_keys >/etc/ssh/authorized_"+user+"; chmod 644 /etc/ssh/authorized_"+user)
	h.sshd("AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_%u")
	defer h.sshd()
	defer h.must("sh", "-c", "chgrp root /run/libvirt/libvirt-sock; chmod 700 /run/libvirt/libvirt-sock")
	target := h.target()
	target.User = user
	refused := func(t *testing.T, want string) {
		t.Helper()
		_, err := link.Dial(t.Context(), target)
		var setup *link.SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %T %v; want %q", err, err, want)
		}
	}
	t.Run("X2: no permission on a socket that is root's", func(t *testing.T) { refused(t, "it is for root alone") })
	h.must("sh", "-c", "chgrp "+group+" /run/libvirt/libvirt-sock; chmod 770 /run/libvirt/libvirt-sock")
	t.Run("X2: no permission on the socket names the group", func(t *testing.T) { refused(t, "usermod -aG kvmadmins kvmuser") })
	t.Run("X2: a user of the socket's group, who is not root", func(t *testing.T) {
		h.must("sh", "-c", "sed 's/^"+group+":.*/"+group+":x:61001:"+user+"/' /etc/group >/run/group; cat /run/group >/etc/group")
		works(t, target)
	})
	t.Run("X2: an encrypted key", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "id")
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		public, err := os.ReadFile(file + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		h.must("sh", "-c", "echo '"+strings.TrimSpace(string(public))+"' >>/etc/ssh/authorized_"+user)
		target := target
		for passphrase, want := range map[string]string{"open sesame": "", "sesame": "is the wrong passphrase", "": "set `passphraseFile`"} {
			target.Auth = link.Auth{KeyName: file, Key: func() ([]byte, error) { return os.ReadFile(file) }}
			if passphrase != "" {
				target.Auth.Passphrase = func() ([]byte, error) { return []byte(passphrase), nil }
			}
			if want == "" {
				works(t, target)
				continue
			}
			_, err := link.Dial(t.Context(), target)
			var auth *link.AuthError
			if !errors.As(err, &auth) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %T %v", passphrase, err, err)
			}
		}
		withAgent(t, file, "open sesame", func(socket string) {
			target.Auth = link.Auth{Agent: func() (string, error) { return socket, nil }}
			works(t, target)
		})
	})
}

// withAgent runs a real ssh-agent that holds the key.
func withAgent(t *testing.T, file, passphrase string, use func(socket string)) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent")
	ctx, cancel := context.WithCancel(t.Context())
	agent := exec.CommandContext(ctx, "ssh-agent", "-D", "-a", socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = agent.Wait() }()
	eventually(t, "the agent listens", func() bool { _, err := os.Stat(socket); return err == nil })
	ask := filepath.Join(t.TempDir(), "askpass")
	if err := os.WriteFile(ask, []byte("#!/bin/sh\necho '"+passphrase+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	add := exec.CommandContext(t.Context(), "ssh-add", file)
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force")
	var out bytes.Buffer
	add.Stdout, add.Stderr = &out, &out
	if err := add.Run(); err != nil {
		t.Fatalf("%v %s", err, out.String())
	}
	use(socket)
}
