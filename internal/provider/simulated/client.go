// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Client is the API of a World in another process.
type Client struct {
	socket string
	http   *http.Transport
}

var _ API = (*Client)(nil)

// NewClient makes a client of the simulator behind a unix socket. It connects with its first call.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 16,
	}}
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Attach describes an entry's hosts.
func (c *Client) Attach(ctx context.Context, o Owner, d Description) error {
	_, err := c.do(ctx, pathAttach, request{Owner: o, Description: &d})
	return err
}

// Create makes the instance.
func (c *Client) Create(ctx context.Context, o Owner, spec provider.InstanceSpec) (provider.Instance, error) {
	return c.one(ctx, pathCreate, request{Owner: o, Ref: spec.InstanceRef, Spec: toWire(spec)})
}

// Get reads the instance.
func (c *Client) Get(ctx context.Context, o Owner, ref provider.InstanceRef) (provider.Instance, error) {
	return c.one(ctx, pathGet, request{Owner: o, Ref: ref})
}

// Delete removes the instance.
func (c *Client) Delete(ctx context.Context, o Owner, ref provider.InstanceRef) error {
	_, err := c.do(ctx, pathDelete, request{Owner: o, Ref: ref})
	return err
}

// Retain marks the instance as retained.
func (c *Client) Retain(ctx context.Context, o Owner, ref provider.InstanceRef) error {
	_, err := c.do(ctx, pathRetain, request{Owner: o, Ref: ref})
	return err
}

// List returns the owner's instances.
func (c *Client) List(ctx context.Context, o Owner) ([]provider.Instance, error) {
	a, err := c.do(ctx, pathList, request{Owner: o})
	return a.Instances, err
}

// Leftovers are what a host holds.
func (c *Client) Leftovers(ctx context.Context, o Owner, host string) ([]provider.Leftover, error) {
	a, err := c.do(ctx, pathLeftovers, request{Owner: o, Ref: provider.InstanceRef{Host: host}})
	return a.Leftovers, err
}

// Reclaim removes leftovers; where it fails, those that went before are told too.
func (c *Client) Reclaim(ctx context.Context, o Owner, host string, chosen []provider.Leftover, dryRun bool) ([]provider.Reclaimed, error) {
	a, err := c.do(ctx, pathReclaim, request{Owner: o, Ref: provider.InstanceRef{Host: host}, Leftovers: chosen, DryRun: dryRun})
	return a.Reclaimed, err
}

// Instances are all instances of all owners.
func (c *Client) Instances(ctx context.Context) ([]Record, error) {
	a, err := c.do(ctx, pathInstances, request{})
	return a.Records, err
}

// Faults that were set at run time.
func (c *Client) Faults(ctx context.Context) ([]Rule, error) {
	a, err := c.do(ctx, pathFaults, request{})
	return a.Rules, err
}

// SetFault sets a fault until it is cleared.
func (c *Client) SetFault(ctx context.Context, r Rule) error {
	_, err := c.do(ctx, pathSetFault, request{Rule: &r})
	return err
}

// ClearFaults clears what SetFault set.
func (c *Client) ClearFaults(ctx context.Context, fault string) (int, error) {
	a, err := c.do(ctx, pathClearFaults, request{Fault: fault})
	return a.Count, err
}

// Watch calls notify with each change.
func (c *Client) Watch(ctx context.Context, o Owner, notify func(Event)) error {
	response, err := c.send(ctx, pathWatch, request{Owner: o})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := json.NewDecoder(response.Body)
	for {
		var line answer
		if err := lines.Decode(&line); err != nil {
			return c.broken(ctx, err)
		}
		if line.Error != nil {
			return line.Error.err()
		}
		if line.Event != nil {
			notify(*line.Event)
		}
	}
}

func (c *Client) one(ctx context.Context, path string, r request) (provider.Instance, error) {
	a, err := c.do(ctx, path, r)
	if err == nil && a.Instance == nil {
		err = &provider.Error{Kind: provider.Transient, Message: "the simulator answered without an instance", Next: c.sameVersion()}
	}
	if err != nil {
		return provider.Instance{}, err
	}
	return *a.Instance, nil
}

func (c *Client) do(ctx context.Context, path string, r request) (answer, error) {
	response, err := c.send(ctx, path, r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var a answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return answer{}, c.broken(ctx, err)
	}
	// What follows the answer is its end: read, the connection can be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1))
	if a.Error != nil {
		return a, a.Error.err()
	}
	return a, nil
}

func (c *Client) send(ctx context.Context, path string, r request) (*http.Response, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, asError(err)
	}
	asked, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://simulator"+path, bytes.NewReader(body))
	if err != nil {
		return nil, asError(err)
	}
	response, err := c.http.RoundTrip(asked)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, &provider.Error{
			Kind: provider.Permanent, Message: fmt.Sprintf("what serves the socket %s answers %s", c.socket, response.Status), Next: c.sameVersion(),
		}
	}
	return response, nil
}

func (c *Client) sameVersion() string {
	return "start the simulator of this version: " + c.command()
}

func (c *Client) command() string { return "egress-proxies simulator --socket " + c.socket }

// broken says what an error of the connection means.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, "")
	}
	e := &provider.Error{Kind: provider.Transient, Reason: provider.HostUnreachable, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		e.Message, e.Next = fmt.Sprintf("no simulator serves the socket %s", c.socket), "start one: "+c.command()
	case errors.Is(err, fs.ErrPermission):
		e.Message, e.Next = fmt.Sprintf("the socket %s belongs to another user", c.socket), "run the simulator and the operator as one user"
	default:
		e.Message, e.Next = fmt.Sprintf("the simulator behind the socket %s went away in mid-call", c.socket), "look whether it runs: "+c.command()
	}
	return e
}
