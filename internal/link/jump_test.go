// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// startJump is a jump host that lets through whoever logs in.
func startJump(t *testing.T, prepare func(*linktest.Server)) *host {
	t.Helper()
	return startHost(t, &linktest.Peer{}, func(s *linktest.Server) {
		s.Serve, s.Forward = nil, true
		if prepare != nil {
			prepare(s)
		}
	})
}

func TestJumpHosts(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	first, second := startJump(t, nil), startJump(t, nil)
	over := func(jumps ...*host) Target {
		target := h.target
		for _, j := range jumps {
			target.Jumps = append(target.Jumps, j.target.Hop)
		}
		return target
	}
	t.Run("over one", func(t *testing.T) { mustWork(t, mustDial(t, over(first))) })
	t.Run("over two", func(t *testing.T) { mustWork(t, mustDial(t, over(first, second))) })
	t.Run("the host is where the last one finds it, and pinned by its own address", func(t *testing.T) {
		target := over(first, second)
		target.KnownHosts = linktest.KnownHosts(t, line("elsewhere", h.server.HostKeys[0].PublicKey()))
		_, err := Dial(t.Context(), target)
		expectAuth(t, err, "no entry")
		if strings.Contains(err.Error(), "jump host") {
			t.Errorf("blames a jump host: %v", err)
		}
	})

	_, stranger := linktest.Ed25519Key(t)
	otherKey, _ := linktest.Ed25519Key(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, c := range map[string]struct {
		change func(*Target)
		auth   bool
		want   string
	}{
		"a jump host with another key": {
			change: func(t2 *Target) {
				t2.Jumps[1].KnownHosts = linktest.KnownHosts(t, line("["+strings.Replace(second.target.Address, ":", "]:", 1), otherKey.PublicKey()))
			},
			auth: true, want: "jump host " + second.target.Address + ": its host key",
		},
		"a jump host that nobody pinned": {
			change: func(t2 *Target) { t2.Jumps[0].KnownHosts = linktest.KnownHosts(t, "# nothing") },
			auth:   true, want: "jump host " + first.target.Address + ": its host key is not known",
		},
		"a jump host that refuses the key": {
			change: func(t2 *Target) { t2.Jumps[1].Auth.Key = func() ([]byte, error) { return stranger, nil } },
			auth:   true, want: "jump host " + second.target.Address + ": it refused user",
		},
		"a key that cannot be read": {
			change: func(t2 *Target) {
				t2.Jumps[1].Auth.Key = func() ([]byte, error) { return nil, errors.New("no such file") }
			},
			auth: true, want: "jump host " + second.target.Address + ": key /keys/id",
		},
		"a first jump host that is down": {
			change: func(t2 *Target) { t2.Jumps[0].Address = closed.Addr().String() },
			want:   "connecting to jump host " + closed.Addr().String(),
		},
		"a host that is down behind them": {
			change: func(t2 *Target) { t2.Address = closed.Addr().String(); t2.HostKeyAlias = "" },
			want:   "connecting from jump host " + second.target.Address + " to " + closed.Addr().String(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := over(first, second)
			c.change(&target)
			_, err := Dial(t.Context(), target)
			if c.auth {
				expectAuth(t, err, c.want)
				return
			}
			var dialErr *DialError
			if !errors.As(err, &dialErr) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
	t.Run("a jump host that does not forward names its setting", func(t *testing.T) {
		stubborn := startJump(t, func(s *linktest.Server) { s.Forward = false })
		_, err := Dial(t.Context(), over(first, stubborn))
		var setup *SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), "jump host "+stubborn.target.Address+" does not forward") ||
			!strings.Contains(err.Error(), "AllowTcpForwarding yes") {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("a jump host that is cut ends the link", func(t *testing.T) {
		jump := startJump(t, nil)
		l := mustDial(t, over(first, jump))
		mustWork(t, l)
		jump.server.Cut()
		mustDie(t, l, 5*time.Second)
	})
	t.Run("a link that is closed frees all of its hops", func(t *testing.T) {
		l := mustDial(t, over(first, second)) // the leak check of the package sees what is left
		l.Close()
		mustDie(t, l, time.Second)
	})
	t.Run("silence at a jump host is bounded by the dial timeout", func(t *testing.T) {
		mute, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer mute.Close()
		target := over(first, second)
		target.Jumps[1].Address = mute.Addr().String()
		target.DialTimeout = time.Second
		_, err = Dial(t.Context(), target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || !dialErr.Timeout() || dialErr.Stage != "SSH handshake with jump host "+mute.Addr().String() {
			t.Errorf("got %T %v", err, err)
		}
	})
}
