// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// startAgent is an ssh-agent with these keys; serve, when set, takes a connection instead.
func startAgent(t *testing.T, serve func(net.Conn), pems ...[]byte) (path string) {
	t.Helper()
	keys := agent.NewKeyring()
	for _, pem := range pems {
		key, err := ssh.ParseRawPrivateKey(pem)
		if err == nil {
			err = keys.Add(agent.AddedKey{PrivateKey: key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if serve == nil {
		serve = func(c net.Conn) { agent.ServeAgent(keys, c) }
	}
	path = filepath.Join(t.TempDir(), "a")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return path
}

func TestAgent(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	key, err := h.target.Auth.Key()
	if err != nil {
		t.Fatal(err)
	}
	_, other := linktest.Ed25519Key(t)
	with := func(socket string) Target {
		target := h.target
		target.Auth = Auth{Agent: func() (string, error) { return socket, nil }}
		return target
	}
	t.Run("its keys are tried in turn", func(t *testing.T) {
		mustWork(t, mustDial(t, with(startAgent(t, nil, other, key))))
	})
	t.Run("over a jump host too", func(t *testing.T) {
		jump := startJump(t, func(s *linktest.Server) { s.Client = h.server.Client })
		target := with(startAgent(t, nil, key))
		target.Jumps = []Hop{jump.target.Hop}
		target.Jumps[0].Auth = target.Auth
		mustWork(t, mustDial(t, target))
	})
	for name, c := range map[string]struct{ socket, want string }{
		"none of its keys is right": {startAgent(t, nil, other), `refused user "root" with the ssh-agent`},
		"it is empty":               {startAgent(t, nil), "it holds no key: add one with ssh-add"},
		"it is not there":           {filepath.Join(t.TempDir(), "none"), "no such file"},
		"it hangs up":               {startAgent(t, func(net.Conn) {}), "the ssh-agent of user"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dial(t.Context(), with(c.socket))
			expectAuth(t, err, c.want)
		})
	}
	t.Run("it is not configured", func(t *testing.T) {
		target := h.target
		target.Auth = Auth{Agent: func() (string, error) { return "", errors.New("SSH_AUTH_SOCK is not set") }}
		_, err := Dial(t.Context(), target)
		expectAuth(t, err, "SSH_AUTH_SOCK is not set")
	})
	t.Run("one that does not answer ends with the dial", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := Dial(ctx, with(startAgent(t, func(c net.Conn) { io.Copy(io.Discard, c) }, key)))
		if err == nil || time.Since(start) > 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestEncryptedKey(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	plain, err := h.target.Auth.Key()
	if err != nil {
		t.Fatal(err)
	}
	encrypted := encrypt(t, plain, "open sesame")
	for name, c := range map[string]struct {
		passphrase func() ([]byte, error)
		want       string
	}{
		"right":      {passphrase: func() ([]byte, error) { return []byte("open sesame"), nil }},
		"missing":    {want: "key /keys/id of user \"root\" cannot be used: it is encrypted, and no passphrase is configured: set `passphraseFile`"},
		"wrong":      {func() ([]byte, error) { return []byte("sesame"), nil }, "it is encrypted, and what is in /keys/passphrase is the wrong passphrase"},
		"unreadable": {func() ([]byte, error) { return nil, errors.New("open /keys/passphrase: permission denied") }, "open /keys/passphrase: permission denied"},
	} {
		t.Run("the passphrase is "+name, func(t *testing.T) { // X2's part; the row is shown on the real host
			target := h.target
			target.Auth.Key = func() ([]byte, error) { return []byte(encrypted), nil }
			target.Auth.Passphrase, target.Auth.PassphraseName = c.passphrase, "/keys/passphrase"
			l, err := Dial(t.Context(), target)
			if err == nil {
				l.Close()
			}
			expectAuth(t, err, c.want)
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("shows the passphrase: %v", err)
			}
		})
	}
}

func TestThrottled(t *testing.T) {
	say := func(text string) func(net.Conn) bool {
		return func(c net.Conn) bool {
			io.WriteString(c, text)
			return false
		}
	}
	reset := func(c net.Conn) bool {
		c.(*net.TCPConn).SetLinger(0)
		return false
	}
	for name, c := range map[string]struct {
		greet func(net.Conn) bool
		want  string
	}{
		"closes without a word":        {func(net.Conn) bool { return false }, "before it said who it is:"},
		"resets":                       {reset, "before it said who it is:"},
		"says that there are too many": {say("Exceeded MaxStartups\r\n"), `(it said "Exceeded MaxStartups")`},
		"says that we are penalised":   {say("Not allowed at this time\r\n"), `(it said "Not allowed at this time")`},
		"closes within its greeting":   {say("SSH-2.0-Open"), `(it said "SSH-2.0-Open")`},
	} {
		t.Run("an sshd that "+name, func(t *testing.T) {
			h := startHost(t, &linktest.Peer{}, func(s *linktest.Server) { s.Greet = c.greet })
			_, err := Dial(t.Context(), h.target)
			expectThrottled(t, err, c.want)
			target := startHost(t, &linktest.Peer{}, nil).target
			target.Jumps = []Hop{h.target.Hop}
			_, err = Dial(t.Context(), target)
			expectThrottled(t, err, "jump host "+h.target.Address+": its sshd closed")
		})
	}
	t.Run("an sshd that ends after its greeting is none", func(t *testing.T) {
		h := startHost(t, &linktest.Peer{}, func(s *linktest.Server) { s.Greet = say("SSH-2.0-OpenSSH_9.2\r\n") })
		_, err := Dial(t.Context(), h.target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || dialErr.Stage != "SSH handshake" {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("nor is a host that refuses connections", func(t *testing.T) {
		h := startHost(t, &linktest.Peer{}, nil)
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		h.target.HostKeyAlias, h.target.Address = "kvm", closed.Addr().String()
		_, err = Dial(t.Context(), h.target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || dialErr.Stage != "connecting" {
			t.Errorf("got %T %v", err, err)
		}
	})
}

func expectThrottled(t *testing.T, err error, want string) {
	t.Helper()
	var throttled *ThrottledError
	if !errors.As(err, &throttled) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %T %v", err, err)
	}
}
