// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func TestTargetOf(t *testing.T) {
	entry := config.SSHCredentials{PrivateKeyFile: "/keys/id", PassphraseFile: "/keys/pass", KnownHostsFile: "/keys/known"}
	own := config.SSHCredentials{Agent: true, KnownHostsFile: "/keys/hops"}
	for name, c := range map[string]struct {
		host config.Host
		want link.Target
	}{
		"a host": {
			config.Host{Address: "KVM1", User: "root", HostKeyAlias: "alias", Socket: "/run/s"},
			link.Target{Socket: "/run/s", Hop: link.Hop{
				Address: "kvm1:22", User: "root", HostKeyAlias: "alias", KnownHosts: "/keys/known",
				Auth: link.Auth{KeyName: "/keys/id", PassphraseName: "/keys/pass"},
			}},
		},
		"behind jump hosts": {
			config.Host{Address: "kvm1", User: "egress", Socket: "/run/s", Jump: []config.JumpHost{
				{Address: "b1", User: "root"}, {Address: "[2001:db8::1]:2222", User: "hop", HostKeyAlias: "b2", Credentials: own},
			}},
			link.Target{
				Socket: "/run/s",
				Hop: link.Hop{Address: "kvm1:22", User: "egress", KnownHosts: "/keys/known",
					Auth: link.Auth{KeyName: "/keys/id", PassphraseName: "/keys/pass"}},
				Jumps: []link.Hop{
					{Address: "b1:22", User: "root", KnownHosts: "/keys/known", Auth: link.Auth{KeyName: "/keys/id", PassphraseName: "/keys/pass"}},
					{Address: "[2001:db8::1]:2222", User: "hop", HostKeyAlias: "b2", KnownHosts: "/keys/hops"},
				},
			},
		},
		"this machine": {
			config.Host{Local: true, User: "root", Socket: "/run/s"},
			link.Target{Local: true, Socket: "/run/s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := TargetOf(entry, c.host)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(link.Auth{}, "Key", "Passphrase", "Agent"), cmpopts.IgnoreUnexported(link.Target{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(got.Jumps) == 2 && (got.Jumps[1].Auth.Agent == nil || got.Jumps[1].Auth.Key != nil || got.Jumps[0].Auth.Agent != nil) {
				t.Error("the agent is not where it should be")
			}
		})
	}
}

func TestCredentialsAreReadAtEachDial(t *testing.T) {
	dir := t.TempDir()
	key, pass := filepath.Join(dir, "id"), filepath.Join(dir, "pass")
	a := auth(config.SSHCredentials{PrivateKeyFile: key, PassphraseFile: pass})
	for _, content := range []string{"one", "two"} {
		for _, file := range []string{key, pass} {
			if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		gotKey, err := a.Key()
		if err != nil || string(gotKey) != content+"\n" {
			t.Errorf("key %q (%v)", gotKey, err)
		}
		gotPass, err := a.Passphrase()
		if err != nil || string(gotPass) != content {
			t.Errorf("passphrase %q (%v)", gotPass, err)
		}
	}
	agent := auth(config.SSHCredentials{Agent: true})
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	if socket, err := agent.Agent(); err != nil || socket != "/run/agent" {
		t.Errorf("got %q, %v", socket, err)
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	if _, err := agent.Agent(); err == nil {
		t.Error("an agent without a socket")
	}
}

// TestLinkErrors: what is wrong with a link is never an answer of the daemon, which alone can say that nothing is there.
func TestLinkErrors(t *testing.T) {
	for want, err := range map[string]error{
		provider.HostUnauthorized: &link.AuthError{Host: "kvm1:22", Message: "revoked"},
		provider.HostIncapable:    &link.SetupError{Host: "kvm1:22", Message: "no socket"},
		provider.HostDegraded:     &link.ThrottledError{Host: "kvm1:22", Message: "its sshd closed the connection"},
		provider.HostUnreachable:  &link.DeadError{Host: "kvm1:22", Reason: "Domain not found"},
		provider.HostTimeout:      &link.DialError{Host: "kvm1:22", Stage: "connecting", Err: context.DeadlineExceeded},
	} {
		t.Run("T4: an error of a link is "+want+", and not that nothing is there", func(t *testing.T) {
			var host *libvirt.HostError
			var answer *libvirt.DaemonError
			got := translate(fmt.Errorf("asking: %w", err))
			if !errors.As(got, &host) || host.Reason != want || !errors.Is(got, err) || errors.As(got, &answer) {
				t.Errorf("got %T %v", got, got)
			}
		})
	}
}
