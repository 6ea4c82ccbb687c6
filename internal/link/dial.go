// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/digitalocean/go-libvirt"
	"golang.org/x/crypto/ssh"
)

// Dial opens a link. One deadline, the earlier of ctx's and the dial timeout, holds
// over TCP, SSH handshakes, socket and libvirt's open.
//
// The error is an *AuthError when a host and the operator do not accept each other, a
// *SetupError when a host has to be changed, a *ThrottledError when an sshd takes no
// more connections for now, and else a *DialError.
func Dial(ctx context.Context, t Target) (*Link, error) {
	t = t.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, t.DialTimeout,
		fmt.Errorf("not done within %v: %w", t.DialTimeout, context.DeadlineExceeded))
	defer cancel()
	if t.Local {
		return dialLocal(ctx, t)
	}
	logins, err := loginsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	defer logins.close()
	tcp, err := t.dialer.DialContext(ctx, "tcp", logins[0].Address)
	if errors.Is(err, syscall.ECONNRESET) { // a host that has no sshd refuses; this one accepted first
		return nil, logins[0].throttled("")
	}
	if err != nil {
		return nil, failed(ctx, t, "connecting"+logins[0].suffix("to"), err)
	}
	return bounded(ctx, t, tcp, func() (*Link, error) { return dialOver(ctx, t, tcp, logins) })
}

// bounded closes conn when ctx ends before open does, or when open fails: everything in open waits for the peer, and is freed by this.
func bounded(ctx context.Context, t Target, conn net.Conn, open func() (*Link, error)) (*Link, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l, err := open()
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, err
	}
	if !stop() {
		l.Close()
		return nil, failed(ctx, t, "opening libvirt", ctx.Err())
	}
	return l, nil
}

func dialOver(ctx context.Context, t Target, tcp net.Conn, logins logins) (*Link, error) {
	client, err := through(ctx, t, tcp, logins)
	if err != nil {
		return nil, err
	}
	raw, way, err := openSocket(client, t)
	if err != nil {
		return nil, failed(ctx, t, "opening "+t.Socket, err)
	}
	l := newLink(t, raw, func() { _ = tcp.Close() }) // the first connection: it carries all others
	l.via = way
	if err := l.open(ctx); err != nil {
		l.Close()
		t.memory.set(keepUnless(err, way))
		return nil, openFailed(ctx, t, way, err)
	}
	return l, nil
}

// keepUnless is the way to try first next time: not one that libvirt's answer did not come through.
func keepUnless(err error, w way) way {
	var refused libvirt.Error
	if errors.As(err, &refused) {
		return w
	}
	return way{}
}

// through logs in on one host after the other, over tcp to the first, and returns the last.
func through(ctx context.Context, t Target, tcp net.Conn, logins logins) (*ssh.Client, error) {
	conn := tcp
	for i, login := range logins {
		client, err := login.handshake(ctx, t, conn)
		if err != nil || i == len(logins)-1 {
			return client, err
		}
		next := logins[i+1]
		conn, err = client.DialContext(ctx, "tcp", next.Address)
		if err != nil {
			return nil, jumpFailed(ctx, t, login, next, err)
		}
	}
	return nil, errors.New("no host to dial")
}

func jumpFailed(ctx context.Context, t Target, jump, next *login, err error) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) && refused.Reason == ssh.Prohibited {
		return &SetupError{Host: t.Address, Message: fmt.Sprintf(
			"jump host %s does not forward to %s: set `AllowTcpForwarding yes` (and no `DisableForwarding`; where there is `PermitOpen`, name it) in the jump host's sshd_config, and reload its sshd",
			jump.Address, next.Address)}
	}
	return failed(ctx, t, fmt.Sprintf("connecting from jump host %s to %s", jump.Address, next.Address), err)
}

// failed makes a *DialError of err, unless it says more already. Where ctx has ended,
// what failed did so for that reason.
func failed(ctx context.Context, t Target, stage string, err error) error {
	var auth *AuthError
	var setup *SetupError
	switch {
	case errors.As(err, &auth), errors.As(err, &setup):
		return err
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return &DialError{Host: t.Address, Stage: stage, Err: err}
}

func openFailed(ctx context.Context, t Target, w way, err error) error {
	var alien *notLibvirtError
	var refused libvirt.Error
	switch {
	case errors.As(err, &alien) && w != (way{}):
		return &SetupError{Host: t.Address, Message: fmt.Sprintf(
			"what comes from %s on the host is %v: its login scripts must print nothing where nobody is at a terminal", w.name, err)}
	case errors.As(err, &alien):
		return &SetupError{Host: t.Address, Message: fmt.Sprintf("what answers on %s is %v", t.Socket, err)}
	case errors.As(err, &refused) && libvirt.ErrorNumber(refused.Code) == libvirt.ErrAuthFailed,
		errors.As(err, &refused) && libvirt.ErrorNumber(refused.Code) == libvirt.ErrAuthUnavailable:
		return &AuthError{Host: t.Address, Message: fmt.Sprintf(
			"libvirt does not let user %q manage it (%s): add the user to the group libvirt on the host", t.User, refused.Message)}
	case errors.As(err, &refused): // as text: it answers no call that a caller made
		err = fmt.Errorf("libvirt says: %s (code %d)", refused.Message, refused.Code)
	}
	return failed(ctx, t, "opening libvirt", err)
}
