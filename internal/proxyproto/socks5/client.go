// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// ErrUnauthorized is a proxy that refuses the credentials.
var ErrUnauthorized = errors.New("the SOCKS5 proxy refused the username or the password")

// ErrNoPasswordMethod is a proxy that does not take username and password.
var ErrNoPasswordMethod = errors.New("the SOCKS5 proxy does not accept username and password")

// ReplyError is a proxy's answer that it could not connect.
type ReplyError struct {
	// Code is the reply of RFC 1928, section 6; never 0.
	Code byte
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("the SOCKS5 proxy could not connect: reply %d (%s)", e.Code, e.Failure())
}

// Failure says it in the terms of both protocols.
func (e *ReplyError) Failure() proxyproto.Failure {
	return proxyproto.FailureOfSOCKS5Reply(e.Code)
}

// Handshake asks the proxy at the other end of conn to connect to target,
// host:port. When it returns nil, conn is a tunnel to it, and no byte of the
// target has been read. The end of ctx ends the handshake; conn is the
// caller's to close.
func Handshake(ctx context.Context, conn net.Conn, username, password, target string) error {
	request, err := connectRequest(target)
	if err != nil {
		return err
	}
	if n := max(len(username), len(password)); n > proxyproto.MaxCredentialLength {
		return fmt.Errorf("username or password is longer than %d bytes, which SOCKS5 cannot carry", proxyproto.MaxCredentialLength)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = handshake(conn, username, password, request)
	if !stop() {
		return fmt.Errorf("SOCKS5 handshake: %w", context.Cause(ctx))
	}
	return err
}

func handshake(conn net.Conn, username, password string, request []byte) error {
	if err := exchange(conn, []byte{version, 1, methodUserPass}, version, methodUserPass, ErrNoPasswordMethod); err != nil {
		return err
	}
	message := make([]byte, 0, 3+len(username)+len(password))
	message = append(message, authVersion, byte(len(username)))
	message = append(message, username...)
	message = append(message, byte(len(password)))
	message = append(message, password...)
	if err := exchange(conn, message, authVersion, authSuccess, ErrUnauthorized); err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("SOCKS5 request: %w", err)
	}
	return readReply(conn)
}

// exchange sends a message and expects a two byte answer.
func exchange(conn net.Conn, message []byte, wantVersion, want byte, refused error) error {
	if _, err := conn.Write(message); err != nil {
		return fmt.Errorf("SOCKS5 handshake: %w", err)
	}
	var answer [2]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("SOCKS5 handshake: %w", err)
	}
	if answer[0] != wantVersion {
		return fmt.Errorf("SOCKS5 handshake: the other end speaks something else (first byte %#x)", answer[0])
	}
	if answer[1] != want {
		return refused
	}
	return nil
}

// readReply reads exactly the answer: the next byte is the target's.
func readReply(r io.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("SOCKS5 reply: %w", err)
	}
	if head[0] != version {
		return fmt.Errorf("SOCKS5 reply: version %d is not SOCKS5", head[0])
	}
	if head[1] != replySuccess {
		return &ReplyError{Code: head[1]}
	}
	if _, err := readAddress(r, head[3]); err != nil {
		return fmt.Errorf("SOCKS5 reply: %w", err)
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return fmt.Errorf("SOCKS5 reply: %w", err)
	}
	return nil
}

func connectRequest(target string) ([]byte, error) {
	target, err := proxyproto.ParseTarget(target)
	if err != nil {
		return nil, err
	}
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	request := []byte{version, commandConnect, 0}
	switch addr, err := netip.ParseAddr(host); {
	case err != nil:
		request = append(request, addressName, byte(len(host)))
		request = append(request, host...)
	case addr.Is4():
		request = append(append(request, addressIPv4), addr.AsSlice()...)
	default:
		request = append(append(request, addressIPv6), addr.AsSlice()...)
	}
	return append(request, byte(port>>8), byte(port)), nil
}
