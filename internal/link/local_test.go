// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// startLocal is a libvirt on this machine.
func startLocal(t *testing.T, peer *linktest.Peer) Target {
	t.Helper()
	target := Target{Local: true, Socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", target.Socket)
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
			wg.Go(func() { peer.Serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return target
}

func TestLocal(t *testing.T) {
	t.Run("a libvirt on this machine needs no SSH", func(t *testing.T) {
		l := mustDial(t, startLocal(t, &linktest.Peer{}))
		mustWork(t, l)
		if l.Host() != ThisMachine {
			t.Errorf("its host is %q", l.Host())
		}
	})
	t.Run("silence is found there too", func(t *testing.T) {
		peer := &linktest.Peer{}
		target := startLocal(t, peer)
		target.KeepaliveInterval, target.KeepaliveCount = 20*time.Millisecond, 3
		l := mustDial(t, target)
		mustWork(t, l)
		peer.Silent.Store(true)
		mustDie(t, l, 10*time.Second)
	})
	t.Run("one that does not answer", func(t *testing.T) {
		target := startLocal(t, &linktest.Peer{OnCall: func(*linktest.PeerConn, linktest.Frame) bool { return true }})
		target.DialTimeout = 300 * time.Millisecond
		_, err := Dial(t.Context(), target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || !dialErr.Timeout() {
			t.Errorf("got %T %v", err, err)
		}
	})
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale}); err != nil {
		t.Fatal(err)
	} else {
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, want := range map[string]string{
		filepath.Join(dir, "none"): "is libvirtd running there?",
		stale:                      "nothing listens on " + stale,
		plain:                      "is not a socket",
	} {
		t.Run("refused: "+filepath.Base(socket), func(t *testing.T) {
			_, err := Dial(t.Context(), Target{Local: true, Socket: socket})
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ThisMachine) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
	t.Run("no permission names the group", func(t *testing.T) {
		info, err := os.Stat(stale)
		if err != nil {
			t.Fatal(err)
		}
		err = explainLocal(Target{Local: true, Socket: stale}.withDefaults(), &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)})
		var setup *SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), joinGroup(ownUser(), groupOf(info))) {
			t.Errorf("got %T %v", err, err)
		}
	})
}
