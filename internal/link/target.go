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

// Target says where one host is, and how to reach libvirt on it.
type Target struct {
	// Address is the host's sshd as host:port, normalised; an IPv6 address in brackets.
	Address string
	// User logs in on the host.
	User string
	// Auth is what the user logs in with.
	Auth Auth
	// KnownHosts is the path of the known_hosts file; it is read again at every dial.
	KnownHosts string
	// HostKeyAlias, when set, is looked up in known_hosts instead of Address.
	HostKeyAlias string
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
}

// Auth is one private key. Its parts are read at every dial, so that a rotated key
// is used at once.
type Auth struct {
	// KeyName names the key in errors: the path of its file.
	KeyName string
	// Key returns the private key as PEM.
	Key func() ([]byte, error)
	// Passphrase opens an encrypted key; nil when there is none.
	Passphrase func() ([]byte, error)
}

func (t Target) withDefaults() Target {
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
func (t Target) keyAddress() string {
	if t.HostKeyAlias != "" {
		return net.JoinHostPort(t.HostKeyAlias, "22")
	}
	return t.Address
}
