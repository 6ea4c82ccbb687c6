// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// way is a command that joins its input and output to libvirt's socket; the zero way has sshd do that by itself.
type way struct{ name, command string }

func (w way) String() string {
	if w.command == "" {
		return "socket forwarding"
	}
	return w.name
}

// memory is the way that one host's last dial found. A nil memory has none, and keeps none.
type memory struct {
	mu  sync.Mutex
	way way
}

func (m *memory) get() way {
	if m == nil {
		return way{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.way
}

func (m *memory) set(w way) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.way = w
}

// openSocket finds a way to libvirt's socket over client: what worked before, then sshd's own forwarding, then whichever command the
// host has. What it returns is freed when the connection under client closes.
func openSocket(client *ssh.Client, t Target) (io.ReadWriter, way, error) {
	if known := t.memory.get(); known != (way{}) {
		if raw, err := start(client, known); err == nil {
			return raw, known, nil
		}
		t.memory.set(way{})
	}
	raw, refused := client.Dial("unix", t.Socket)
	if refused == nil {
		return raw, way{}, nil
	}
	answer := askHost(client, t)
	found := answer.way(t)
	if found == (way{}) {
		return nil, way{}, answer.explain(t, fmt.Errorf("sshd does not forward: %w", refused))
	}
	// The command got through. So would sshd by now, had only the daemon been away for a moment.
	if raw, err := client.Dial("unix", t.Socket); err == nil {
		return raw, way{}, nil
	}
	command, err := start(client, found)
	if err != nil {
		return nil, way{}, fmt.Errorf("starting %s: %w", found.name, err)
	}
	t.memory.set(found)
	return command, found, nil
}

// command is a way's command while it runs.
type command struct {
	name string
	io.Writer
	out    io.Reader
	said   chan struct{} // closed when all of its complaint is there
	errors strings.Builder
}

const (
	maxComplaint = 1 << 10
	// lastWords is how long the end of a command waits for its complaint, which comes with it.
	lastWords = 500 * time.Millisecond
)

func start(client *ssh.Client, w way) (*command, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	in, errIn := session.StdinPipe()
	out, errOut := session.StdoutPipe()
	complaint, errErr := session.StderrPipe()
	err = errors.Join(errIn, errOut, errErr)
	if err == nil {
		err = session.Start(w.command)
	}
	if err != nil {
		_ = session.Close() // what failed is err
		return nil, err
	}
	c := &command{name: w.name, Writer: in, out: out, said: make(chan struct{})}
	go func() { // it ends with the connection
		defer close(c.said)
		_, _ = io.Copy(&c.errors, io.LimitReader(complaint, maxComplaint))
	}()
	return c, nil
}

// Read tells why the command ended, where it says so.
func (c *command) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-c.said:
		if complaint := strings.Join(strings.Fields(printable(c.errors.String())), " "); complaint != "" {
			return 0, fmt.Errorf("%s on the host ended: %s", c.name, complaint)
		}
	case <-timer.C:
	}
	return 0, fmt.Errorf("%s on the host ended", c.name)
}

// printable is text from a host as logs and conditions may show it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s)
}

// run is a command's output, up to limit bytes.
func run(client *ssh.Client, command string, limit int64) (string, error) {
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }() // it has ended, or goes with the connection
	out, err := session.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := session.Start(command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(out, limit))
	return string(text), err
}

// shell is a command line that the login shell of any user takes: what sh is to do has no line break in it.
func shell(script string) string { return "sh -c " + quote(script) }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
