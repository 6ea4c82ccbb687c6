// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// login is one hop of a dial, with all that is needed to log in there.
type login struct {
	Hop
	host   string // that the dial goes to
	jump   bool
	config *ssh.ClientConfig
	keys   *hostKeys
	agent  net.Conn // that signs; nil without one
}

type logins []*login

// loginsOf reads the credentials for every hop, so that a mistake in them shows before anything is dialed.
func loginsOf(ctx context.Context, t Target) (logins, error) {
	var all logins
	for i := range len(t.Jumps) + 1 {
		l := &login{host: t.Address, jump: i < len(t.Jumps)}
		if l.jump {
			l.Hop = t.Jumps[i]
		} else {
			l.Hop = t.Hop
		}
		all = append(all, l)
		if err := l.prepare(ctx); err != nil {
			all.close()
			return nil, err
		}
	}
	return all, nil
}

// close ends what only the handshakes need.
func (all logins) close() {
	for _, l := range all {
		if l.agent != nil {
			_ = l.agent.Close() // nothing was written that could be lost
		}
	}
}

func (l *login) prepare(ctx context.Context) error {
	var err error
	if l.keys, err = loadHostKeys(l); err != nil {
		return err
	}
	signers, err := l.signers(ctx)
	if err != nil {
		return l.refuse("%s of user %q cannot be used: %v", l.credential(), l.User, err)
	}
	l.config = &ssh.ClientConfig{
		Config:            ssh.Config{Ciphers: Ciphers()},
		User:              l.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyCallback:   l.keys.callback,
		HostKeyAlgorithms: l.keys.algorithms(),
	}
	return nil
}

// refuse is an *AuthError that names the hop.
func (l *login) refuse(format string, args ...any) error {
	return &AuthError{Host: l.host, Message: l.prefix() + fmt.Sprintf(format, args...)}
}

func (l *login) prefix() string {
	if l.jump {
		return "jump host " + l.Address + ": "
	}
	return ""
}

// suffix names a jump host after a preposition, and the host itself not at all: errors begin with it.
func (l *login) suffix(preposition string) string {
	if l.jump {
		return " " + preposition + " jump host " + l.Address
	}
	return ""
}

func (l *login) credential() string {
	if l.Auth.Agent != nil {
		return "the ssh-agent"
	}
	return "key " + l.Auth.KeyName
}

func (l *login) signers(ctx context.Context) ([]ssh.Signer, error) {
	if l.Auth.Agent == nil {
		signer, err := l.Auth.signer()
		return []ssh.Signer{signer}, err
	}
	path, err := l.Auth.Agent()
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	if l.agent, err = dialer.DialContext(ctx, "unix", path); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.agent.Close() })
	defer stop()
	signers, err := agent.NewClient(l.agent).Signers()
	if err == nil && len(signers) == 0 {
		err = errors.New("it holds no key: add one with ssh-add")
	}
	return signers, err
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
		return nil, errors.New("it is encrypted, and no passphrase is configured: set `passphraseFile`")
	}
	passphrase, err := a.Passphrase()
	if err != nil {
		return nil, fmt.Errorf("it is encrypted, and its passphrase cannot be read: %w", err)
	}
	signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, passphrase)
	if errors.Is(err, x509.IncorrectPasswordError) {
		return nil, fmt.Errorf("it is encrypted, and %s is the wrong passphrase", a.passphrase())
	}
	if err != nil {
		return nil, fmt.Errorf("opening it with its passphrase: %w", err)
	}
	return signer, nil
}

func (a Auth) passphrase() string {
	if a.PassphraseName == "" {
		return "what is configured"
	}
	return "what is in " + a.PassphraseName
}

// handshake logs in over conn.
func (l *login) handshake(ctx context.Context, t Target, conn net.Conn) (*ssh.Client, error) {
	stop := func() bool { return true }
	if l.agent != nil { // it may not answer
		stop = context.AfterFunc(ctx, func() { _ = l.agent.Close() })
	}
	defer stop()
	g := &greeting{Conn: newBatch(conn)}
	c, channels, requests, err := ssh.NewClientConn(g, l.keyAddress(), l.config)
	if err != nil {
		return nil, l.failed(ctx, t, g, err)
	}
	return ssh.NewClient(c, channels, requests), nil
}

func (l *login) failed(ctx context.Context, t Target, g *greeting, err error) error {
	var auth *AuthError
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &auth):
		return auth
	case errors.As(err, &negotiation) && strings.Contains(negotiation.What, "host key") && len(l.keys.pins) > 0:
		return l.keys.mismatch(peerAlgorithms(negotiation, l.keys))
	case ctx.Err() == nil && strings.Contains(err.Error(), "unable to authenticate"):
		return l.refuse("it refused user %q with %s: add the public half to that user's authorized_keys, or name the right user and key",
			l.User, l.credential())
	case ctx.Err() == nil && hungUp(err) && !g.complete():
		return l.throttled(g.said())
	}
	return failed(ctx, t, "SSH handshake"+l.suffix("with"), err)
}

// throttled is the error for an sshd that ended a connection that it had accepted; said is what it said first.
func (l *login) throttled(said string) error {
	return &ThrottledError{Host: l.host, Message: l.prefix() + "its sshd closed the connection before it said who it is" + said +
		": it has too many connections at once (`MaxStartups`), or turns our address away for a while (`PerSourcePenalties`, fail2ban, hosts.deny)"}
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
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
