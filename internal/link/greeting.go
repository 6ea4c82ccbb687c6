// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// greeting is a connection to an sshd that keeps the first of what it says: an sshd that takes no more connections says so in plain
// text, if at all, where "SSH-2.0-..." should be.
type greeting struct {
	net.Conn
	over atomic.Bool // no more is kept
	mu   sync.Mutex
	kept []byte
}

const maxGreeting = 1 << 10

func (g *greeting) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 && !g.over.Load() {
		g.mu.Lock()
		g.kept = append(g.kept, p[:min(n, maxGreeting-len(g.kept))]...)
		g.over.Store(len(g.kept) == maxGreeting || identified(g.kept))
		g.mu.Unlock()
	}
	return n, err
}

// identified says whether there is a whole line that begins with SSH-; others may come before it.
func identified(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("SSH-")) && bytes.HasSuffix(line, []byte("\n")) {
			return true
		}
	}
	return false
}

func (g *greeting) complete() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return identified(g.kept)
}

// said is what came instead, in brackets.
func (g *greeting) said() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := strings.TrimSpace(printable(string(g.kept[:min(len(g.kept), 200)])))
	if text == "" {
		return ""
	}
	return " (it said " + strconv.Quote(text) + ")"
}
