// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// ErrUnauthorized is a proxy that refuses the credentials.
var ErrUnauthorized = errors.New("the HTTP proxy refused the username or the password (407)")

// StatusError is a proxy's answer to CONNECT that is not 2xx.
type StatusError struct {
	Code int
	// Reason is the value of proxyproto.HeaderError, where there is one.
	Reason string
}

func (e *StatusError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("the HTTP proxy answered CONNECT with %d (%s)", e.Code, e.Failure())
	}
	return fmt.Sprintf("the HTTP proxy answered CONNECT with %d", e.Code)
}

// Is makes a 407 an ErrUnauthorized.
func (e *StatusError) Is(target error) bool {
	return target == ErrUnauthorized && e.Code == http.StatusProxyAuthRequired
}

// Failure says it in the terms of both protocols.
func (e *StatusError) Failure() proxyproto.Failure {
	if e.Reason == "" && e.Code == http.StatusGatewayTimeout {
		return proxyproto.FailureTimeout
	}
	return proxyproto.ParseFailure(e.Reason)
}

// maxAnswerBytes bounds the header of a proxy's answer.
const maxAnswerBytes = 16 << 10

// Handshake asks the HTTP proxy at the other end of conn to connect to
// target, host:port, and returns the connection to use from then on: conn
// itself, or one around it when the target's first bytes came along with the
// answer. A username of "" sends no credentials. The end of ctx ends the
// handshake; on an error conn is still the caller's to close.
func Handshake(ctx context.Context, conn net.Conn, username, password, target string) (net.Conn, error) {
	target, err := proxyproto.ParseTarget(target)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := handshake(conn, username, password, target)
	if !stop() {
		return nil, fmt.Errorf("CONNECT handshake: %w", context.Cause(ctx))
	}
	return tunnel, err
}

func handshake(conn net.Conn, username, password, target string) (net.Conn, error) {
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if username != "" {
		request += headerProxyAuthorization + ": " + basic(username, password) + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return nil, fmt.Errorf("CONNECT request: %w", err)
	}
	limited := &io.LimitedReader{R: conn, N: maxAnswerBytes}
	reader := bufio.NewReader(limited)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // closing would read a refusal to its end; the connection ends it
	if err != nil {
		return nil, fmt.Errorf("CONNECT answer: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return nil, &StatusError{Code: answer.StatusCode, Reason: answer.Header.Get(proxyproto.HeaderError)}
	}
	early, err := reader.Peek(reader.Buffered())
	if err != nil {
		return nil, fmt.Errorf("CONNECT answer: %w", err)
	}
	if len(early) == 0 {
		return conn, nil
	}
	return &earlyConn{Conn: conn, early: early}, nil
}

// earlyConn is a connection whose first bytes were read with the answer.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 && len(p) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Unwrap lets a tunnel splice the connection itself (splice.Unwrapper).
func (c *earlyConn) Unwrap() (net.Conn, []byte) { return c.Conn, c.early }

// CloseWrite half-closes where the connection can, and closes otherwise.
func (c *earlyConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
