// SPDX-License-Identifier: Apache-2.0

package linktest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Socket is the only socket that a Server forwards to.
const Socket = "/var/run/libvirt/libvirt-sock"

// Server is an sshd in this process. Its fields are set before Start.
type Server struct {
	HostKeys []ssh.Signer
	// Client may log in as root, and nobody else.
	Client ssh.PublicKey
	// Serve gets each stream that is forwarded to Socket. Without it sshd refuses to forward.
	Serve func(io.ReadWriteCloser)
	// Exec answers a command; without it and Command there are no sessions.
	Exec func(command string) string
	// Command serves a command on its stream, and returns its exit status. It goes before Exec.
	Command func(command string, stream ssh.Channel) (status uint32)
	// Forward lets users through to any TCP address, as on a jump host.
	Forward bool
	// Greet, when set, gets each new connection before SSH does; it returns false to have it closed.
	Greet func(net.Conn) bool

	Addr string // of the listener, once started

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// Start listens on loopback until the test ends.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = l.Addr().String()
	s.conns = map[net.Conn]struct{}{}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = struct{}{}
			if s.ended {
				c.Close()
			}
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.Cut()
		s.wg.Wait()
	})
}

// Cut closes every connection, as a crash of the host's sshd would.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) config() *ssh.ServerConfig {
	c := &ssh.ServerConfig{PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if meta.User() != "root" || string(key.Marshal()) != string(s.Client.Marshal()) {
			return nil, os.ErrPermission
		}
		return nil, nil
	}}
	for _, k := range s.HostKeys {
		c.AddHostKey(k)
	}
	return c
}

func (s *Server) serve(tcp net.Conn) {
	defer func() {
		tcp.Close()
		s.mu.Lock()
		delete(s.conns, tcp)
		s.mu.Unlock()
	}()
	if s.Greet != nil && !s.Greet(tcp) {
		return
	}
	conn, channels, requests, err := ssh.NewServerConn(tcp, s.config())
	if err != nil {
		return
	}
	defer conn.Close()
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	for ch := range channels {
		s.wg.Go(func() { s.channel(ch) })
	}
}

func (s *Server) channel(ch ssh.NewChannel) {
	switch ch.ChannelType() {
	case "direct-streamlocal@openssh.com":
		var ask struct {
			Path, Reserved0 string
			Reserved1       uint32
		}
		if ssh.Unmarshal(ch.ExtraData(), &ask) != nil || ask.Path != Socket || s.Serve == nil {
			ch.Reject(ssh.ConnectionFailed, "open failed") // what OpenSSH says to all of these
			return
		}
		if stream, requests, err := ch.Accept(); err == nil {
			s.wg.Go(func() { ssh.DiscardRequests(requests) })
			s.Serve(stream)
		}
	case "direct-tcpip":
		s.forward(ch)
	case "session":
		s.session(ch)
	default:
		ch.Reject(ssh.UnknownChannelType, ch.ChannelType()) // the peer sees either
	}
}

// forward joins a channel to the TCP address that it asks for.
func (s *Server) forward(ch ssh.NewChannel) {
	var ask struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if ssh.Unmarshal(ch.ExtraData(), &ask) != nil || !s.Forward {
		ch.Reject(ssh.Prohibited, "open failed") // what OpenSSH says
		return
	}
	out, err := net.Dial("tcp", net.JoinHostPort(ask.Host, strconv.Itoa(int(ask.Port))))
	if err != nil {
		ch.Reject(ssh.ConnectionFailed, "Connection refused") // the peer sees either
		return
	}
	stream, requests, err := ch.Accept()
	if err != nil {
		out.Close()
		return
	}
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	s.wg.Go(func() {
		io.Copy(out, stream) // its end is the connection's
		out.Close()
	})
	io.Copy(stream, out) // see above
	stream.Close()
	out.Close()
}

func (s *Server) session(ch ssh.NewChannel) {
	if s.Exec == nil && s.Command == nil {
		ch.Reject(ssh.Prohibited, "no sessions") // the peer sees either
		return
	}
	stream, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer stream.Close()
	for r := range requests {
		var ask struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &ask) != nil {
			r.Reply(false, nil) // the peer sees either
			continue
		}
		r.Reply(true, nil) // the peer sees either
		s.wg.Go(func() { ssh.DiscardRequests(requests) })
		status := struct{ C uint32 }{}
		if s.Command != nil {
			status.C = s.Command(ask.Command, stream)
		} else {
			io.WriteString(stream, s.Exec(ask.Command)) // the peer sees either
		}
		stream.SendRequest("exit-status", false, ssh.Marshal(status)) // the peer sees either
		return
	}
}

// Ed25519Key makes a key, and returns it as a signer and as PEM.
func Ed25519Key(t testing.TB) (ssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer(t, key)
}

// RSAKey makes a key of 2048 bits, which signs with SHA-2 only, as an sshd's does.
func RSAKey(t testing.TB) ssh.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := signer(t, key)
	sha2, err := ssh.NewSignerWithAlgorithms(s.(ssh.AlgorithmSigner), []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	if err != nil {
		t.Fatal(err)
	}
	return sha2
}

func signer(t testing.TB, key any) (ssh.Signer, []byte) {
	t.Helper()
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "test")
	if err != nil {
		t.Fatal(err)
	}
	return s, pem.EncodeToMemory(block)
}

// KnownHosts writes a known_hosts file of these lines and returns its path.
func KnownHosts(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
