// SPDX-License-Identifier: Apache-2.0

// Package socks5 is a SOCKS5 server and client (RFC 1928) with username and
// password (RFC 1929): CONNECT only, to IPv4 and IPv6 addresses and names.
package socks5

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/splice"
)

// DefaultHandshakeTimeout bounds a handshake, without the time to dial.
const DefaultHandshakeTimeout = 10 * time.Second

// Config is what a Server needs; Auth, Dial and Tunneler are required.
type Config struct {
	Auth     proxyproto.Authenticator
	Dial     proxyproto.DialFunc
	Tunneler *splice.Tunneler
	Logf     proxyproto.Logf
	// HandshakeTimeout is for everything that the client has to send; 0 is
	// DefaultHandshakeTimeout.
	HandshakeTimeout time.Duration
}

// Server serves SOCKS5 clients until Shutdown.
type Server struct {
	config Config

	ctx    context.Context
	cancel context.CancelCauseFunc
	conns  sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	listeners map[net.Listener]struct{}
}

// errShutdown ends the tunnels that outlive a shutdown's grace.
var errShutdown = errors.New("the proxy shuts down")

// NewServer makes a server.
func NewServer(config Config) *Server {
	if config.HandshakeTimeout <= 0 {
		config.HandshakeTimeout = DefaultHandshakeTimeout
	}
	s := &Server{config: config, listeners: map[net.Listener]struct{}{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Serve accepts from l until Shutdown, then returns nil; otherwise it
// returns the error of Accept. Nobody else bounds the number of connections:
// l must, as a mux.Mux's listener does.
func (s *Server) Serve(l net.Listener) error {
	if !s.addListener(l) {
		_ = l.Close()
		return nil
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.isClosing() {
				return nil
			}
			return err
		}
		if !s.start(conn) {
			_ = conn.Close()
		}
	}
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) start(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns.Go(func() { s.serveConn(conn) })
	return true
}

// Shutdown stops accepting and waits for the tunnels. When ctx ends first it
// closes them and returns the cause; no goroutine is left either way.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.mu.Unlock()

	ended := make(chan struct{})
	go func() { s.conns.Wait(); close(ended) }()
	defer s.cancel(errShutdown)
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.cancel(errShutdown)
		<-ended
		return context.Cause(ctx)
	}
}

// serveConn is one client from greeting to the end of its tunnel.
func (s *Server) serveConn(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(s.config.HandshakeTimeout)); err != nil {
		return
	}
	// Larger than any message, so that one read gets each.
	reader := bufio.NewReaderSize(conn, 1024)
	username, ok := s.authenticate(conn, reader)
	if !ok {
		return
	}
	target, err := readRequest(reader)
	if err != nil {
		var answer *replyError
		if errors.As(err, &answer) {
			_, _ = conn.Write(reply(answer.code))
		}
		return
	}
	request := proxyproto.Request{
		Protocol: proxyproto.ProtocolSOCKS5, Username: username, Target: target, Client: conn.RemoteAddr(),
	}
	upstream, ok := s.connect(conn, reader, request)
	if !ok {
		return
	}
	early, _ := reader.Peek(reader.Buffered())
	_, _ = s.config.Tunneler.Tunnel(s.ctx, conn, upstream, early)
}

// authenticate runs the method and password messages.
func (s *Server) authenticate(conn net.Conn, reader *bufio.Reader) (username string, ok bool) {
	methods, err := readGreeting(reader)
	if err != nil {
		return "", false
	}
	if !bytes.Contains(methods, []byte{methodUserPass}) {
		if bytes.Contains(methods, []byte{methodNone}) && proxyproto.LetsAnonymousIn(s.config.Auth) {
			_, err = conn.Write([]byte{version, methodNone})
			return "", err == nil
		}
		_, _ = conn.Write([]byte{version, methodUnacceptable})
		return "", false
	}
	if _, err := conn.Write([]byte{version, methodUserPass}); err != nil {
		return "", false
	}
	username, password, err := readUserPass(reader)
	if err != nil {
		return "", false
	}
	if !s.config.Auth.Authenticate(username, password) {
		_, _ = conn.Write([]byte{authVersion, authFailure})
		return "", false
	}
	_, err = conn.Write([]byte{authVersion, authSuccess})
	return username, err == nil
}

// connect dials and answers. A client that hangs up meanwhile ends the dial.
func (s *Server) connect(conn net.Conn, reader *bufio.Reader, request proxyproto.Request) (net.Conn, bool) {
	// The dialer has its own timeout, after which the client must still get
	// its answer.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, false
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	unwatch := watchHangUp(conn, reader, cancel)
	upstream, err := s.config.Dial(ctx, request)
	unwatch()
	if err == nil && ctx.Err() != nil {
		_ = upstream.Close()
		return nil, false
	}
	code := byte(replySuccess)
	if err != nil {
		code = proxyproto.FailureOf(err).SOCKS5Reply()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(s.config.HandshakeTimeout))
	_, writeErr := conn.Write(reply(code))
	if err != nil {
		return nil, false
	}
	if writeErr != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = upstream.Close()
		return nil, false
	}
	return upstream, true
}

// watchHangUp calls hungUp when the connection ends before stop is called.
// What the client sends early stays in the reader.
func watchHangUp(conn net.Conn, reader *bufio.Reader, hungUp func()) (stop func()) {
	if reader.Buffered() > 0 {
		return func() {}
	}
	done := make(chan struct{})
	var stopping sync.Mutex
	stopped := false
	go func() {
		defer close(done)
		_, err := reader.Peek(1)
		stopping.Lock()
		defer stopping.Unlock()
		if err != nil && !stopped {
			hungUp()
		}
	}()
	return func() {
		stopping.Lock()
		stopped = true
		stopping.Unlock()
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
	}
}
