// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// netcat is what this test program does in place of its tests where a host's `nc` is asked for.
const netcat = "LINK_TEST_NETCAT"

// actAsNetcat joins input and output to the unix socket that the last argument names, until the input ends.
func actAsNetcat(args []string) int {
	conn, err := net.Dial("unix", args[len(args)-1])
	if err != nil {
		os.Stderr.WriteString("nc: " + err.Error() + "\n")
		return 1
	}
	go func() {
		io.Copy(os.Stdout, conn)
		os.Exit(0)
	}()
	io.Copy(conn, os.Stdin)
	return 0
}

// What the netcats of this world say to -h, and what each needs before -U. Those that know no unix sockets refuse it.
var netcats = map[string]struct{ help, flags string }{
	"Debian's netcat-openbsd": {"usage: nc [-46CDdFhklNnrStUuvZz] [-I length] [-i interval] [-M ttl]\n\t  [-m minttl] [-O length] [-P proxy_username] [-p source_port]\n\t  [-q seconds] [-s sourceaddr]", "-q 0 -U"},
	"OpenBSD's nc":            {"usage: nc [-46cDdFhklNnrStUuvz] [-C certfile] [-e name] [-H hash] [-I length]", "-N -U"},
	"ncat":                    {"Ncat 7.93 ( https://nmap.org/ncat )\nUsage: ncat [options] [hostname] [port]\n  -U, --unixsock  Use Unix domain sockets only", "-U"},
	"netcat-traditional":      {"[v1.10-47]\nconnect to somewhere:\tnc [-options] hostname port[s] [ports] ...\n\t-q secs\t\tquit after EOF on stdin", ""},
	"busybox":                 {"BusyBox v1.35.0 multi-call binary.\n\nUsage: nc [OPTIONS] HOST PORT  - connect", ""},
}

// shellHost is a host that runs commands with a real shell, finds the given tools only, and has a scripted libvirt on a real socket.
type shellHost struct {
	*host
	socket   string
	path     string
	listener net.Listener
	commands atomic.Int64
	nobody   bool // commands run as a user without any right
}

func startShellHost(t *testing.T, peer *linktest.Peer, tools map[string]string) *shellHost {
	t.Helper()
	dir, err := os.MkdirTemp("", "link") // short, as a socket's path must be, and open to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &shellHost{path: filepath.Join(dir, "bin"), socket: filepath.Join(dir, "it's; touch $HOME", "lib`virt`-sock")}
	for _, d := range []string{dir, s.path, filepath.Dir(s.socket)} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"sh", "stat", "grep", "cat"} {
		real, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(real, filepath.Join(s.path, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range tools {
		if err := os.WriteFile(filepath.Join(s.path, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.listen(t, peer)
	s.host = startHost(t, peer, func(server *linktest.Server) {
		server.Serve = nil
		server.Command = s.run
	})
	s.target.Socket = s.socket
	return s
}

func (s *shellHost) listen(t *testing.T, peer *linktest.Peer) {
	t.Helper()
	var err error
	if s.listener, err = net.Listen("unix", s.socket); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.socket, 0o700); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { peer.Serve(c) })
		}
	})
	t.Cleanup(func() { s.listener.Close(); wg.Wait() })
}

func (s *shellHost) run(line string, stream ssh.Channel) uint32 {
	s.commands.Add(1)
	c := exec.Command("/bin/sh", "-c", line)
	c.Env = []string{"PATH=" + s.path, netcat + "=1"}
	c.Stdout, c.Stderr = stream, stream.Stderr()
	if s.nobody && os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return 127
	}
	go func() { io.Copy(in, stream); in.Close() }()
	c.Wait() // its exit status is what follows
	return uint32(max(0, c.ProcessState.ExitCode()))
}

// nc is a script that behaves as one of netcats.
func nc(t *testing.T, kind string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := netcats[kind]
	return "if [ \"$1\" = -h ]; then cat >&2 <<'END'\n" + n.help + "\nEND\nexit 1; fi\n" +
		"got=; while [ $# -gt 1 ]; do got=\"$got${got:+ }$1\"; shift; done\n" +
		"if [ \"$got\" != '" + n.flags + "' ]; then echo \"nc: invalid option -- 'U'\" >&2; exit 1; fi\n" +
		"exec " + quote(self) + " \"$1\"\n"
}

func TestWaysToTheSocket(t *testing.T) {
	for kind, n := range netcats {
		if n.flags == "" {
			t.Run("a host whose only nc is "+kind+" names the setting and the package", func(t *testing.T) {
				h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, kind)})
				_, err := Dial(t.Context(), h.target)
				var setup *SetupError
				if !errors.As(err, &setup) || !strings.Contains(err.Error(), "AllowStreamLocalForwarding yes") ||
					!strings.Contains(err.Error(), "netcat-openbsd") || !strings.Contains(err.Error(), "invalid option") {
					t.Errorf("got %T %v", err, err)
				}
			})
			continue
		}
		t.Run("sshd does not forward, and the host has "+kind, func(t *testing.T) {
			h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, kind)})
			l := mustDial(t, h.target)
			mustWork(t, l)
			if !strings.HasPrefix(l.Via(), "nc") {
				t.Errorf("via %s", l.Via())
			}
		})
	}
	t.Run("bulk data goes through a command", func(t *testing.T) {
		var got bytes.Buffer
		h := startShellHost(t, store(&got), map[string]string{"nc": nc(t, "ncat")})
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
		if err := upload(t, mustDial(t, h.target), data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes arrived, or others", got.Len())
		}
	})
	t.Run("the daemon is gone, its socket is there", func(t *testing.T) {
		h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, "ncat")})
		h.listener.(*net.UnixListener).SetUnlinkOnClose(false)
		h.listener.Close()
		_, err := Dial(t.Context(), h.target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || !strings.Contains(err.Error(), "nothing listens on "+h.socket) {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("a user that may not use the socket is told its group", func(t *testing.T) {
		h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, "ncat")})
		h.nobody = true
		if os.Getuid() != 0 { // then nobody is we ourselves
			if err := os.Chmod(h.socket, 0); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Dial(t.Context(), h.target)
		var setup *SetupError
		info, _ := os.Stat(h.socket)
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), joinGroup("root", groupOf(info))) {
			t.Errorf("got %T %v", err, err)
		}
	})
	t.Run("no socket there", func(t *testing.T) {
		h := startShellHost(t, &linktest.Peer{}, nil)
		h.target.Socket = h.socket + "-other"
		_, err := Dial(t.Context(), h.target)
		var dialErr *DialError
		if !errors.As(err, &dialErr) || !strings.Contains(err.Error(), "there is no socket") {
			t.Errorf("got %T %v", err, err)
		}
	})
}

func TestHelperGoesBeforeNetcat(t *testing.T) {
	for socket, want := range map[string]string{
		DefaultSocket:                 "virt-ssh-helper",
		"/run/libvirt/libvirt-sock":   "virt-ssh-helper",
		"/run/libvirt/virtqemud-sock": "virt-ssh-helper",
		"/run/egress/libvirt-sock":    "nc -N",
	} {
		works := "state fine\nworks nc -N\n"
		if isStandard(socket) {
			works += "works virt-ssh-helper\n"
		}
		if got := parseAnswer(works).way(Target{Socket: socket}); got.name != want {
			t.Errorf("%s: %q", socket, got.name)
		}
	}
	if got := parseAnswer("works rm -rf /\n").way(Target{Socket: DefaultSocket}); got != (way{}) {
		t.Errorf("a host chose the command %q", got.command)
	}
}

// TestWayIsRemembered: what was found is used at once by the next dial of the same Keeper, until it fails.
func TestWayIsRemembered(t *testing.T) {
	peer := &linktest.Peer{}
	h := startShellHost(t, peer, map[string]string{"nc": nc(t, "ncat")})
	k := NewKeeper(h.target)
	defer k.Close()
	mustGet(t, k).Close()
	if n := h.commands.Load(); n != 2 {
		t.Fatalf("%d commands for the first link: one to ask, one to carry", n)
	}
	l := mustGet(t, k)
	if n := h.commands.Load(); n != 3 {
		t.Errorf("%d commands for the second", n-2)
	}
	mustWork(t, l)
	if err := os.Remove(filepath.Join(h.path, "nc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), k.target); err == nil || !strings.Contains(err.Error(), "nc on the host ended: ") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(h.path, "ncat"), []byte("#!/bin/sh\n"+nc(t, "ncat")), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWork(t, mustDial(t, k.target))
	if got := k.target.memory.get().name; got != "ncat" {
		t.Errorf("remembered %q", got)
	}
}

// TestCommandEndsWithItsLink: nothing is left running on the host.
func TestCommandEndsWithItsLink(t *testing.T) {
	h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, "Debian's netcat-openbsd")})
	ended := make(chan struct{}, 10)
	run := h.server.Command
	h.server.Command = func(line string, stream ssh.Channel) uint32 {
		defer func() { ended <- struct{}{} }()
		return run(line, stream)
	}
	l := mustDial(t, h.target)
	mustWork(t, l)
	<-ended // the one that asked
	l.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the command outlives its link")
	}
}

func TestLoginScriptsThatPrint(t *testing.T) {
	h := startShellHost(t, &linktest.Peer{}, map[string]string{"nc": nc(t, "ncat")})
	run := h.server.Command
	h.server.Command = func(line string, stream ssh.Channel) uint32 {
		io.WriteString(stream, "Welcome to this host, which greets everybody!\n")
		return run(line, stream)
	}
	_, err := Dial(t.Context(), h.target)
	var setup *SetupError
	if !errors.As(err, &setup) || !strings.Contains(err.Error(), "login scripts") {
		t.Errorf("got %T %v", err, err)
	}
}
