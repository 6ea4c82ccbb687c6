// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"time"
)

// Defaults of a Target; each stands in for a value that is zero or negative.
const (
	DefaultSocket            = "/var/run/libvirt/libvirt-sock"
	DefaultDialTimeout       = 15 * time.Second
	DefaultCallTimeout       = 60 * time.Second
	DefaultKeepaliveInterval = 5 * time.Second
	DefaultKeepaliveCount    = 3
)

// ThisMachine is the Host of links and errors where libvirt runs on the operator's own machine.
const ThisMachine = "this machine"

// Hop is one sshd, and how to log in there.
type Hop struct {
	// Address is the sshd as host:port, normalised; an IPv6 address in brackets.
	Address string
	// User logs in there.
	User string
	// Auth is what the user logs in with.
	Auth Auth
	// KnownHosts is the path of the known_hosts file; it is read again at every dial.
	KnownHosts string
	// HostKeyAlias, when set, is looked up in known_hosts instead of Address.
	HostKeyAlias string
}

// Target says where one host is, and how to reach libvirt on it.
type Target struct {
	// Hop is the host itself.
	Hop
	// Jumps are passed on the way there, in this order. Each one's host key is checked.
	Jumps []Hop
	// Local has libvirt on the operator's own machine: only Socket is used then, without SSH.
	Local bool
	// Socket is libvirt's unix socket on the host; DefaultSocket when empty.
	Socket string

	// DialTimeout bounds TCP connect, SSH handshake, socket and libvirt's open together.
	DialTimeout time.Duration
	// CallTimeout bounds one Do when its context has no earlier deadline.
	CallTimeout time.Duration
	// KeepaliveInterval is how long the daemon may be silent before it is pinged.
	KeepaliveInterval time.Duration
	// KeepaliveCount is how many pings may go unanswered. A host that falls silent
	// is found after at most (KeepaliveCount + 2) × KeepaliveInterval.
	KeepaliveCount int
	// Count is told the name of each procedure that is called; nil for nobody. It must not block.
	Count func(procedure string)

	memory *memory // of the way to the socket; a Keeper's
	dialer net.Dialer
}

// Auth is one private key, or the keys of an ssh-agent. It is read at every dial, so that a rotated key is used at once.
type Auth struct {
	// KeyName names the key in errors: the path of its file.
	KeyName string
	// Key returns the private key as PEM.
	Key func() ([]byte, error)
	// PassphraseName names the passphrase in errors: the path of its file.
	PassphraseName string
	// Passphrase opens an encrypted key; nil when there is none.
	Passphrase func() ([]byte, error)
	// Agent is used instead of Key where it is set: it returns the path of the agent's socket.
	Agent func() (string, error)
}

func (t Target) withDefaults() Target {
	if t.Local {
		t.Address, t.User = ThisMachine, ownUser()
	}
	if t.Socket == "" {
		t.Socket = DefaultSocket
	}
	t.DialTimeout = positiveOr(t.DialTimeout, DefaultDialTimeout)
	t.CallTimeout = positiveOr(t.CallTimeout, DefaultCallTimeout)
	t.KeepaliveInterval = positiveOr(t.KeepaliveInterval, DefaultKeepaliveInterval)
	t.KeepaliveCount = positiveOr(t.KeepaliveCount, DefaultKeepaliveCount)
	return t
}

func positiveOr[T int | time.Duration](v, fallback T) T {
	if v <= 0 {
		return fallback
	}
	return v
}

// keyAddress is what known_hosts is searched for. As in OpenSSH, an alias has no port.
func (h Hop) keyAddress() string {
	if h.HostKeyAlias != "" {
		return net.JoinHostPort(h.HostKeyAlias, "22")
	}
	return h.Address
}
