// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"golang.org/x/crypto/ssh"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func TestDialDeadline(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	asked := make(chan struct{}, 10)
	silent := &linktest.Peer{OnCall: func(*linktest.PeerConn, linktest.Frame) bool {
		asked <- struct{}{}
		return true
	}}
	h := startHost(t, silent, nil)

	noSSH := h.target
	noSSH.Address = mute.Addr().String()
	for _, c := range []struct {
		stage   string
		target  Target
		reached func() // that stage
	}{
		{"SSH handshake", noSSH, func() {
			if c, err := mute.Accept(); err == nil {
				t.Cleanup(func() { c.Close() })
				c.Read(make([]byte, 1))
			}
		}},
		{"opening libvirt", h.target, func() { <-asked }},
	} {
		t.Run(c.stage, func(t *testing.T) {
			c.target.DialTimeout = 2 * time.Second
			go c.reached()
			_, err := Dial(t.Context(), c.target)
			var dialErr *DialError
			if !errors.As(err, &dialErr) || !dialErr.Timeout() || dialErr.Stage != c.stage {
				t.Errorf("got %T %v", err, err)
			}
		})
		t.Run(c.stage+", cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { c.reached(); cancel() }()
			_, err := Dial(ctx, c.target)
			var dialErr *DialError
			if !errors.As(err, &dialErr) || dialErr.Timeout() || !errors.Is(err, context.Canceled) || dialErr.Stage != c.stage {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
	t.Run("connecting", func(t *testing.T) {
		closed := h.target
		closed.Address = mute.Addr().String()
		mute.Close()
		_, err := Dial(t.Context(), closed)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || dialErr.Timeout() || dialErr.Stage != "connecting" {
			t.Errorf("got %T %v", err, err)
		}
	})
}

func TestUserKey(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	plain, err := h.target.Auth.Key()
	if err != nil {
		t.Fatal(err)
	}
	_, stranger := linktest.Ed25519Key(t)
	missing := func() ([]byte, error) { return nil, errors.New("open /keys/id: no such file") }
	secret := func(s string) func() ([]byte, error) { return func() ([]byte, error) { return []byte(s), nil } }
	encrypted := encrypt(t, plain, "open sesame")
	for name, c := range map[string]struct {
		auth Auth
		user string
		want string
	}{
		"right":                       {auth: Auth{Key: secret(string(plain))}},
		"encrypted":                   {auth: Auth{Key: secret(encrypted), Passphrase: secret("open sesame")}},
		"encrypted, no passphrase":    {auth: Auth{Key: secret(encrypted)}, want: "no passphrase is configured"},
		"encrypted, wrong passphrase": {auth: Auth{Key: secret(encrypted), Passphrase: secret("sesame")}, want: "is the wrong passphrase"},
		"another's":                   {auth: Auth{Key: secret(string(stranger))}, want: `refused user "root" with key /keys/id`},
		"another user's":              {auth: Auth{Key: secret(string(plain))}, user: "egress", want: `refused user "egress"`},
		"unreadable":                  {auth: Auth{Key: missing}, want: "no such file"},
		"no key at all":               {auth: Auth{Key: secret("hello")}, want: "key /keys/id of user"},
		"not configured":              {auth: Auth{}, want: "no key is configured"},
	} {
		t.Run(name, func(t *testing.T) {
			target := h.target
			target.Auth = c.auth
			target.Auth.KeyName = "/keys/id"
			if c.user != "" {
				target.User = c.user
			}
			l, err := Dial(t.Context(), target)
			if err == nil {
				l.Close()
			}
			expectAuth(t, err, c.want)
		})
	}
	t.Run("known_hosts is missing", func(t *testing.T) {
		target := h.target
		target.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
		_, err := Dial(t.Context(), target)
		expectAuth(t, err, target.KnownHosts)
	})
	t.Run("known_hosts is nonsense", func(t *testing.T) {
		target := h.target
		target.KnownHosts = linktest.KnownHosts(t, "hello world")
		_, err := Dial(t.Context(), target)
		expectAuth(t, err, target.KnownHosts)
	})
}

func encrypt(t *testing.T, plain []byte, passphrase string) string {
	t.Helper()
	key, err := ssh.ParseRawPrivateKey(plain)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(crypto.PrivateKey(*key.(*ed25519.PrivateKey)), "", []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

// X1 and X2 in small; the rows themselves are shown on the real host.
func TestSocketRefused(t *testing.T) {
	for name, c := range map[string]struct {
		host  string // what the host says of its socket; empty when it allows no command
		setup bool
		want  string
	}{
		"sshd may not forward":     {host: "state fine\nsocket " + DefaultSocket + "\n", setup: true, want: "AllowStreamLocalForwarding yes"},
		"what was tried":           {host: "state fine\nfails nc -q 0: nc: invalid option -- 'U'\n", setup: true, want: "tried there: nc -q 0: nc: invalid option"},
		"no permission":            {host: "state denied\ngroup kvm-admins\n", setup: true, want: "usermod -aG kvm-admins root"},
		"no permission, no stat":   {host: "state denied\ngroup\n", setup: true, want: "add the user to the socket's group (libvirt"},
		"for root alone":           {host: "state denied\ngroup root\n", setup: true, want: "unix_sock_group"},
		"not a socket":             {host: "state nosocket\n", setup: true, want: "is not a socket"},
		"modular daemons":          {host: "state missing\nsocket " + modularSocket + "\n", setup: true, want: "but /var/run/libvirt/virtqemud-sock"},
		"the daemon is down":       {host: "state missing\n", want: "is libvirtd running there?"},
		"the daemon was killed":    {host: "state idle\n", want: "nothing listens on " + DefaultSocket},
		"the host does not say":    {want: "AllowStreamLocalForwarding yes"},
		"the host says other than": {host: "This account is not available.\n", want: "AllowStreamLocalForwarding yes"},
		"login scripts print":      {host: "Welcome!\nstate idle\n", want: "nothing listens on"},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHost(t, &linktest.Peer{}, func(s *linktest.Server) {
				s.Serve = nil
				if c.host != "" {
					s.Exec = func(string) string { return c.host }
				}
			})
			_, err := Dial(t.Context(), h.target)
			var setup *SetupError
			var dialErr *DialError
			if errors.As(err, &setup) != c.setup || errors.As(err, &dialErr) == c.setup || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

func TestLibvirtRefuses(t *testing.T) {
	refuse := func(procedure uint32, code libvirt.ErrorNumber) *linktest.Peer {
		return &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure != procedure {
				return false
			}
			c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(uint32(code), "no")))
			return true
		}}
	}
	t.Run("a user that may not manage libvirt", func(t *testing.T) {
		_, err := Dial(t.Context(), startHost(t, refuse(linktest.AuthList, libvirt.ErrAuthFailed), nil).target)
		expectAuth(t, err, "group libvirt")
	})
	t.Run("any other error says nothing of what a caller asked for", func(t *testing.T) {
		_, err := Dial(t.Context(), startHost(t, refuse(linktest.ConnectOpen, libvirt.ErrNoDomain), nil).target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || libvirt.IsNotFound(err) || !strings.Contains(err.Error(), "libvirt says: no") {
			t.Errorf("got %T %v", err, err)
		}
	})
}
