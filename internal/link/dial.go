// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/digitalocean/go-libvirt"
	"golang.org/x/crypto/ssh"
)

// Dial opens a link. One deadline, the earlier of ctx's and the dial timeout, holds
// over TCP, SSH handshake, socket and libvirt's open.
//
// The error is an *AuthError when host and operator do not accept each other, a
// *SetupError when the host has to be changed, and else a *DialError.
func Dial(ctx context.Context, t Target) (*Link, error) {
	t = t.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, t.DialTimeout,
		fmt.Errorf("not done within %v: %w", t.DialTimeout, context.DeadlineExceeded))
	defer cancel()

	config, keys, err := clientConfig(t)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	tcp, err := dialer.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, failed(ctx, t, "connecting", err)
	}
	// Everything below waits for the peer, and is freed by this.
	stop := context.AfterFunc(ctx, func() { _ = tcp.Close() })
	l, err := dialOver(ctx, t, tcp, config, keys)
	if err != nil {
		stop()
		_ = tcp.Close()
		return nil, err
	}
	if !stop() {
		l.Close()
		return nil, failed(ctx, t, "opening libvirt", ctx.Err())
	}
	return l, nil
}

func dialOver(ctx context.Context, t Target, tcp net.Conn, config *ssh.ClientConfig, keys *hostKeys) (*Link, error) {
	conn, channels, requests, err := ssh.NewClientConn(tcp, t.keyAddress(), config)
	if err != nil {
		return nil, handshakeFailed(ctx, t, keys, err)
	}
	client := ssh.NewClient(conn, channels, requests)
	raw, err := openSocket(client, t)
	if err != nil {
		return nil, failed(ctx, t, "opening "+t.Socket, err)
	}
	l := newLink(t, raw, func() { _ = tcp.Close() })
	if err := l.open(ctx); err != nil {
		l.Close()
		return nil, openFailed(ctx, t, err)
	}
	return l, nil
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

func handshakeFailed(ctx context.Context, t Target, keys *hostKeys, err error) error {
	var auth *AuthError
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &auth):
		return auth
	case errors.As(err, &negotiation) && strings.Contains(negotiation.What, "host key") && len(keys.pins) > 0:
		return keys.mismatch(peerAlgorithms(negotiation, keys))
	case ctx.Err() == nil && strings.Contains(err.Error(), "unable to authenticate"):
		return &AuthError{Host: t.Address, Message: fmt.Sprintf(
			"it refused user %q with key %s: add the public half to that user's authorized_keys, or name the right user and key",
			t.User, t.Auth.KeyName)}
	}
	return failed(ctx, t, "SSH handshake", err)
}

// peerAlgorithms is whichever of the error's two lists is not what we asked for: the
// library fills them by role.
func peerAlgorithms(e *ssh.AlgorithmNegotiationError, keys *hostKeys) []string {
	ours := keys.algorithms()
	if len(e.SupportedAlgorithms) > 0 && len(ours) > 0 && e.SupportedAlgorithms[0] == ours[0] {
		return e.RequestedAlgorithms
	}
	return e.SupportedAlgorithms
}

func openFailed(ctx context.Context, t Target, err error) error {
	var alien *notLibvirtError
	var refused libvirt.Error
	switch {
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

func clientConfig(t Target) (*ssh.ClientConfig, *hostKeys, error) {
	keys, err := loadHostKeys(t)
	if err != nil {
		return nil, nil, err
	}
	signer, err := t.Auth.signer()
	if err != nil {
		return nil, nil, &AuthError{Host: t.Address, Message: fmt.Sprintf("key %s of user %q cannot be used: %v", t.Auth.KeyName, t.User, err)}
	}
	// The library's own order of ciphers begins with AES-GCM, which hardware does fastest.
	return &ssh.ClientConfig{
		User:              t.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   keys.callback,
		HostKeyAlgorithms: keys.algorithms(),
	}, keys, nil
}

func (a Auth) signer() (ssh.Signer, error) {
	if a.Key == nil {
		return nil, errors.New("no key is configured")
	}
	pem, err := a.Key()
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var encrypted *ssh.PassphraseMissingError
	if !errors.As(err, &encrypted) {
		return signer, err
	}
	if a.Passphrase == nil {
		return nil, errors.New("it is encrypted, and no passphrase is configured")
	}
	passphrase, err := a.Passphrase()
	if err != nil {
		return nil, fmt.Errorf("reading its passphrase: %w", err)
	}
	if signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, passphrase); err != nil {
		return nil, fmt.Errorf("opening it with the passphrase: %w", err)
	}
	return signer, nil
}

// openSocket tries the ways to libvirt's socket, in turn.
func openSocket(client *ssh.Client, t Target) (io.ReadWriter, error) {
	var refusals []error
	for _, open := range transports {
		raw, err := open(client, t.Socket)
		if err == nil {
			return raw, nil
		}
		refusals = append(refusals, err)
	}
	return nil, diagnose(client, t, errors.Join(refusals...))
}
