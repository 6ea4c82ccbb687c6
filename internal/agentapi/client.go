// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// defaultRequestTimeout bounds one request when its context does not.
const defaultRequestTimeout = 15 * time.Second

// Client asks one agent. Each request has a connection of its own, so that
// there is nothing to close.
type Client struct {
	// Address is the agent's host:port.
	Address string
	// Key is the instance's control key.
	Key Key
	// Dial connects to Address; nil is the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// ResponseError is an agent that understood and said no.
type ResponseError struct {
	Address string
	Code    int
	Message string
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("agent at %s: answer %d: %s", e.Address, e.Code, e.Message)
}

// Status asks the agent for its status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodGet, pathStatus, nil)
}

// PutCredentials replaces the agent's credentials at once. When it returns
// nil they are in force and outlive a restart of the agent and a reboot of
// the guest.
func (c *Client) PutCredentials(ctx context.Context, credentials []Credential) (Status, error) {
	return c.RotateCredentials(ctx, credentials, 0)
}

// RotateCredentials is PutCredentials, but those that are replaced stay valid
// for a while, in whole seconds. Agents of protocol version 1 refuse it.
func (c *Client) RotateCredentials(ctx context.Context, credentials []Credential, overlap time.Duration) (Status, error) {
	if err := ValidateCredentials(credentials); err != nil {
		return Status{}, err
	}
	body, err := json.Marshal(CredentialsRequest{Credentials: credentials, OverlapSeconds: int64(overlap / time.Second)})
	if err != nil {
		return Status{}, err
	}
	return c.do(ctx, http.MethodPut, pathCredentials, body)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultRequestTimeout)
	defer cancel()
	transport := &http.Transport{DialTLSContext: c.dialTLS, DisableKeepAlives: true, MaxResponseHeaderBytes: 8 << 10}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+c.Address+path, bytes.NewReader(body))
	if err != nil {
		return Status{}, fmt.Errorf("agent at %s: %w", c.Address, err)
	}
	// RoundTrip, not http.Client: an agent does not redirect.
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Status{}, c.explain(err)
	}
	defer func() { _ = response.Body.Close() }()
	return c.read(response)
}

func (c *Client) read(response *http.Response) (Status, error) {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
	if err != nil {
		return Status{}, c.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		var said errorBody
		if json.Unmarshal(data, &said) != nil || said.Error == "" {
			said.Error = "no reason given; is the agent of another version than the operator?"
		}
		return Status{}, &ResponseError{Address: c.Address, Code: response.StatusCode, Message: said.Error}
	}
	var status Status
	// Not strict: a newer agent may say more.
	if err := json.Unmarshal(data, &status); err != nil {
		return Status{}, fmt.Errorf("agent at %s: its status cannot be read: %w", c.Address, err)
	}
	return status, nil
}

func (c *Client) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	config, err := ClientTLS(c.Key)
	if err != nil {
		return nil, err
	}
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tlsConn := tls.Client(conn, config)
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &handshakeError{err}
	}
	return tlsConn, nil
}

// handshakeError is a connection over which no control channel came about.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// explain says what an error of the connection means and what to do.
func (c *Client) explain(err error) error {
	var handshake *handshakeError
	switch {
	case errors.Is(err, ErrWrongKey), isRejectedCertificate(err):
		return fmt.Errorf("agent at %s: %w: the instance was made from another seed, or another machine has its address; check the instance's address, then replace the instance", c.Address, ErrWrongKey)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("agent at %s: no answer in time; is the guest up, and its port reachable from the operator? (%w)", c.Address, err)
	case errors.As(err, &handshake):
		return fmt.Errorf("agent at %s: what listens there is not this agent, or one of another version (%w)", c.Address, err)
	}
	return fmt.Errorf("agent at %s: %w", c.Address, err)
}

// isRejectedCertificate says whether the agent turned our key down. With
// TLS 1.3 that comes with the first read, as an alert that crypto/tls has no
// type for.
func isRejectedCertificate(err error) bool {
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return alert == 42 // bad_certificate
	}
	return strings.Contains(err.Error(), "tls: bad certificate")
}
