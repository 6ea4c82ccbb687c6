// SPDX-License-Identifier: Apache-2.0

//go:build live

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/leak"
)

func TestDrillCycles(t *testing.T) {
	h := up(t)
	const workers = 5 // sshd takes 10 at once that have not logged in
	cycles := drills.Count(1000, 200)
	t.Run(fmt.Sprintf("M6: %d links whose daemon goes right after the open: none is wedged", cycles), func(t *testing.T) {
		h := &host{h.Host, t}
		target := h.target()
		target.Socket = h.hangingUp()
		dial := func() bool {
			l, err := link.Dial(t.Context(), target)
			if err != nil {
				var dialErr *link.DialError
				if !errors.As(err, &dialErr) || dialErr.Timeout() {
					t.Errorf("got %T %v", err, err)
				}
				return true
			}
			defer l.Close()
			select {
			case <-l.Done():
			case <-time.After(10 * time.Second):
				return false
			}
			var dead *link.DeadError
			err = l.Do(t.Context(), func(c *libvirt.Libvirt) error { _, err := c.ConnectGetLibVersion(); return err })
			return errors.As(err, &dead)
		}
		dial() // what is made once is made
		goroutines, descriptors := leak.Goroutines(t), leak.OpenFiles(t)
		var wedged atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range cycles / workers {
					if !dial() {
						wedged.Add(1)
					}
				}
			})
		}
		wg.Wait()
		var g, d int
		eventually(t, "what the links had is given back", func() bool {
			g, d = runtime.NumGoroutine()-goroutines, leak.OpenFiles(t)-descriptors
			return g <= 2 && d <= 2
		})
		fmt.Printf("figure: cycles: %d open-close, %d wedged, %d goroutines and %d descriptors above start\n", cycles, wedged.Load(), max(0, g), max(0, d))
		if n := wedged.Load(); n > 0 {
			t.Errorf("%d of %d links are wedged", n, cycles)
		}
		works(t, h.target()) // the next dial is as good as ever
	})
	t.Run("M6: a daemon that is restarted costs one dial", func(t *testing.T) {
		h := &host{h.Host, t}
		k := link.NewKeeper(h.target())
		defer k.Close()
		first, err := k.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask(t, first)
		if err := h.RestartLibvirtd(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		second, err := k.Get(t.Context())
		if err != nil || second == first {
			t.Fatalf("the same link again, or %v", err)
		}
		ask(t, second)
	})
}

// hangingUp is a socket of the real libvirtd behind the host's real sshd, which closes as soon as ConnectOpen is answered.
func (h *host) hangingUp() (path string) {
	h.t.Helper()
	known, err := knownhosts.New(h.KnownHostsFile)
	if err != nil {
		h.t.Fatal(err)
	}
	pem, err := os.ReadFile(h.KeyFile)
	if err != nil {
		h.t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		h.t.Fatal(err)
	}
	client, err := ssh.Dial("tcp", h.SSHAddress, &ssh.ClientConfig{
		User: h.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: known, HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "link")
	if err != nil {
		h.t.Fatal(err)
	}
	path = filepath.Join(dir, "sock") // a socket in the file system is the same in every namespace that has the file
	l, err := net.Listen("unix", path)
	if err != nil {
		h.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				up, err := client.Dial("unix", h.Socket)
				if err != nil {
					return
				}
				defer up.Close()
				wg.Go(func() { io.Copy(up, c) })
				untilOpened(c, up)
			})
		}
	})
	h.t.Cleanup(func() {
		l.Close()
		client.Close()
		wg.Wait()
		os.RemoveAll(dir)
	})
	return path
}

// untilOpened passes frames on to to, up to the answer to ConnectOpen.
func untilOpened(to io.Writer, from io.Reader) {
	const connectOpen = 1
	for {
		head := make([]byte, 28)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		copy(frame, head)
		if _, err := io.ReadFull(from, frame[28:]); err != nil {
			return
		}
		if _, err := to.Write(frame); err != nil || binary.BigEndian.Uint32(head[12:]) == connectOpen {
			return
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

func dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
