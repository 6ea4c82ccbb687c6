// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package link proves what needs a real host of package internal/link: sshd with other settings, other users, a daemon that goes away.
package link

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/digitalocean/go-libvirt"
	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// linkHost is a host of these tests' own: they change its sshd, its users and the mode of libvirt's socket.
const linkHost = 41

type host struct {
	*kvmhost.Host
	t *testing.T
}

func up(t *testing.T) *host {
	t.Helper()
	return &host{kvmhost.Up(t, linkHost), t}
}

func (h *host) must(args ...string) string {
	h.t.Helper()
	out, err := h.Exec(h.t.Context(), args...)
	if err != nil {
		h.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(out)
}

func (h *host) target() link.Target {
	return link.Target{Hop: h.hop(h.SSHAddress), Socket: h.Socket}
}

func (h *host) hop(address string) link.Hop {
	name, _, _ := strings.Cut(h.SSHAddress, ":")
	return link.Hop{
		Address: address, User: h.User, KnownHosts: h.KnownHostsFile, HostKeyAlias: name,
		Auth: link.Auth{KeyName: h.KeyFile, Key: func() ([]byte, error) { return os.ReadFile(h.KeyFile) }},
	}
}

var original sync.Map // path to content, as the host was brought up

// sshd gives the host's sshd these settings, before its own, until the test ends.
func (h *host) sshd(settings ...string) {
	h.t.Helper()
	file := filepath.Join(h.Dir, "ssh", "sshd_config")
	text, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	own, _ := original.LoadOrStore(file, string(text))
	set := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		for _, step := range []error{h.Cut(h.t.Context(), kvmhost.SSHD), h.Mend(h.t.Context(), kvmhost.SSHD)} {
			if step != nil {
				h.t.Fatal(step)
			}
		}
	}
	set(strings.Join(settings, "\n") + "\n" + own.(string))
}

// hide makes programs of the host look as if they were not there, until the test ends.
func (h *host) hide(programs ...string) {
	h.t.Helper()
	for _, p := range programs {
		h.must("mount", "--bind", "/dev/null", p)
		h.t.Cleanup(func() {
			if out, err := h.Exec(context.WithoutCancel(h.t.Context()), "umount", p); err != nil {
				h.t.Errorf("umount %s: %v %s", p, err, out)
			}
		})
	}
}

// works opens a link and asks the host's libvirt for its domains.
func works(t *testing.T, target link.Target) *link.Link {
	t.Helper()
	l, err := link.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	ask(t, l)
	return l
}

func ask(t *testing.T, l *link.Link) {
	t.Helper()
	if err := l.Do(t.Context(), func(c *libvirt.Libvirt) error {
		_, _, err := c.ConnectListAllDomains(1, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
