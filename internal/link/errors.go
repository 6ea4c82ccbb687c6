// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
)

// ErrClosed is returned by a Keeper after its Close.
var ErrClosed = errors.New("the links to this host are closed")

// DeadError says that a link is dead. It wraps nothing on purpose: whatever killed
// the link, the error of one call is not the answer to another.
type DeadError struct {
	Host   string
	Reason string
}

func (e *DeadError) Error() string {
	return fmt.Sprintf("the link to %s is dead: %s", e.Host, e.Reason)
}

// AuthError says that host and operator do not accept each other: a host key that is
// unknown, wrong or revoked, or a user key that is refused or cannot be read. Trying
// again does not help until somebody changes a key.
type AuthError struct {
	Host    string
	Message string
}

func (e *AuthError) Error() string { return fmt.Sprintf("host %s: %s", e.Host, e.Message) }

// SetupError says what has to be changed on the host, or in its configuration,
// before a link to it can work.
type SetupError struct {
	Host    string
	Message string
}

func (e *SetupError) Error() string { return fmt.Sprintf("host %s: %s", e.Host, e.Message) }

// ThrottledError says that a host is there, and that its sshd takes no more connections
// for now. It is no sign that the host is down; dialing at a slower pace helps.
type ThrottledError struct {
	Host    string
	Message string
}

func (e *ThrottledError) Error() string { return fmt.Sprintf("host %s: %s", e.Host, e.Message) }

// DialError says that a host could not be reached, for a reason that may pass.
type DialError struct {
	Host string
	// Stage is what was going on: "connecting", "SSH handshake", "opening SOCKET", "opening libvirt",
	// with the jump host where it is one's.
	Stage string
	Err   error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("host %s cannot be reached: %s: %v", e.Host, e.Stage, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// Timeout is true when a deadline, and nothing else, ended the dial.
func (e *DialError) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// SourceError says that an upload failed because its reader did: the fault lies
// with where the data comes from, not with the host.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return fmt.Sprintf("reading the data to upload: %v", e.Err) }

func (e *SourceError) Unwrap() error { return e.Err }

// notLibvirtError says that what arrived cannot come from a libvirt daemon.
type notLibvirtError struct{ detail string }

func (e *notLibvirtError) Error() string { return "not libvirt: " + e.detail }

func notLibvirt(format string, args ...any) error {
	return &notLibvirtError{detail: fmt.Sprintf(format, args...)}
}
