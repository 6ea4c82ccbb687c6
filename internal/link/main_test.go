// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(netcat) != "" {
		os.Exit(actAsNetcat(os.Args))
	}
	goleak.VerifyTestMain(m)
}

// host is an SSH server with a scripted libvirt behind it, and how to reach it.
type host struct {
	server *linktest.Server
	peer   *linktest.Peer
	target Target
}

// startHost pins the server's only key. prepare, which may be nil, changes what it
// likes before the server starts.
func startHost(t *testing.T, peer *linktest.Peer, prepare func(*linktest.Server)) *host {
	t.Helper()
	hostKey, _ := linktest.Ed25519Key(t)
	client, pem := linktest.Ed25519Key(t)
	s := &linktest.Server{HostKeys: []ssh.Signer{hostKey}, Client: client.PublicKey(), Serve: func(c io.ReadWriteCloser) { peer.Serve(c) }}
	if prepare != nil {
		prepare(s)
	}
	s.Start(t)
	return &host{server: s, peer: peer, target: Target{Hop: Hop{
		Address:    s.Addr,
		User:       "root",
		KnownHosts: linktest.KnownHosts(t, knownhosts.Line([]string{s.Addr}, hostKey.PublicKey())),
		Auth:       Auth{KeyName: "/keys/id", Key: func() ([]byte, error) { return pem, nil }},
	}}}
}

func mustDial(t *testing.T, target Target) *Link {
	t.Helper()
	l, err := Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// pipeLink opens a link to peer without SSH between them; it works in a synctest bubble.
func pipeLink(t *testing.T, target Target, peer *linktest.Peer) (*Link, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); peer.Serve(theirs) }()
	target.Address = "pipe:22"
	l := newLink(target.withDefaults(), ours, func() { ours.Close() })
	t.Cleanup(func() {
		l.Close()
		l.guard.workers.Wait()
		<-done
	})
	return l, l.open(t.Context())
}

func mustPipe(t *testing.T, target Target, peer *linktest.Peer) *Link {
	t.Helper()
	l, err := pipeLink(t, target, peer)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func version(ctx context.Context, l *Link) error {
	v, err := Call(ctx, l, func(c *libvirt.Libvirt) (uint64, error) { return c.ConnectGetLibVersion() })
	if err == nil && v != linktest.LibVersion {
		return errors.New("the wrong answer")
	}
	return err
}

func mustWork(t *testing.T, l *Link) {
	t.Helper()
	if err := version(t.Context(), l); err != nil {
		t.Fatalf("a call failed: %v", err)
	}
}

func mustDie(t *testing.T, l *Link, within time.Duration) *DeadError {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(within):
		t.Fatalf("the link is still alive after %v", within)
	}
	var dead *DeadError
	if !errors.As(l.Err(), &dead) {
		t.Fatalf("Err() is %v, not a DeadError", l.Err())
	}
	return dead
}

// hold is an OnCall that keeps what calls of one procedure would be answered.
type hold struct {
	procedure uint32
	calls     chan heldCall
}

type heldCall struct {
	conn *linktest.PeerConn
	call linktest.Frame
}

func (h heldCall) answer() { h.conn.Send(linktest.DefaultAnswer(h.call)) }

func newHold(procedure uint32) *hold {
	return &hold{procedure: procedure, calls: make(chan heldCall, 100)}
}

func (h *hold) onCall(c *linktest.PeerConn, f linktest.Frame) bool {
	if f.Procedure != h.procedure {
		return false
	}
	h.calls <- heldCall{c, f}
	return true
}

// stall is a call that a peer with newHold(procClose) never answers by itself.
const procClose = linktest.ConnectClose

func stall(ctx context.Context, l *Link) error {
	return l.Do(ctx, func(c *libvirt.Libvirt) error { return c.ConnectClose() })
}
