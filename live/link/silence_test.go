// SPDX-License-Identifier: Apache-2.0

//go:build live

package link

import (
	"strings"
	"testing"
	"time"
)

func TestSilentDaemon(t *testing.T) {
	h := up(t)
	t.Run("M20: a daemon that stops behind an sshd that lives is found within the bound", func(t *testing.T) {
		h := &host{h.Host, t}
		target := h.target()
		target.KeepaliveInterval, target.KeepaliveCount = time.Second, 3
		l := works(t, target)
		for idle := time.Now(); time.Since(idle) < 6*time.Second; time.Sleep(100 * time.Millisecond) {
			if err := l.Err(); err != nil {
				t.Fatalf("a daemon that answers pings is given up: %v", err)
			}
		}
		pid := h.must("cat", "/run/libvirtd.pid")
		h.must("kill", "-STOP", pid)
		defer h.must("kill", "-CONT", pid)
		start := time.Now()
		select {
		case <-l.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the link lives on")
		}
		took := time.Since(start)
		if bound := time.Duration(target.KeepaliveCount+2) * target.KeepaliveInterval; took > bound+time.Second || !strings.Contains(l.Err().Error(), "keepalives") {
			t.Errorf("after %v (bound %v): %v", took, bound, l.Err())
		}
	})
}
