// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what went wrong, in the words in which a caller decides. The set is closed.
type Kind int

// Kinds. The zero value is Transient, so that an error nobody classified is retried and shown, and never taken for an absence.
const (
	// Transient: everything else; retried with backoff.
	Transient Kind = iota
	// NotFound: the host said that there is no such instance.
	NotFound
	// Capacity: no room here; try elsewhere, or later.
	Capacity
	// Unauthorized: credentials or host keys were refused.
	Unauthorized
	// Permanent: will not succeed until somebody changes the spec, the configuration or the host.
	Permanent
	// Conflict: something of that name exists, and is not ours.
	Conflict
	// InProgress: long work goes on in the background.
	InProgress
)

var kindNames = map[Kind]string{
	Transient: "Transient", NotFound: "NotFound", Capacity: "Capacity", Unauthorized: "Unauthorized",
	Permanent: "Permanent", Conflict: "Conflict", InProgress: "InProgress",
}

// Kinds lists every kind, for tests that must cover them all.
func Kinds() []Kind {
	return []Kind{Transient, NotFound, Capacity, Unauthorized, Permanent, Conflict, InProgress}
}

// String is the kind's name, as conditions show it.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Error is the only error type that a provider returns.
type Error struct {
	Kind Kind
	// Reason is a condition reason (CamelCase) where one says more than the kind, else empty.
	Reason string
	// Host is the name of the host in the providers file, or empty when no host is concerned.
	Host string
	// Object is what the error is about: `domain egress-…`, `volume …`, `image debian-12`.
	Object string
	// Message says what happened.
	Message string
	// Next says what to do; empty when there is nothing to do but wait.
	Next string
	// Progress of background work, 0 to 100; InProgress only.
	Progress int
	// Err is the cause, or nil. Its text is not part of the message.
	Err error
}

// Error is one sentence: where, what, and what to do.
func (e *Error) Error() string {
	var where []string
	if e.Host != "" {
		where = append(where, "host "+e.Host)
	}
	if e.Object != "" {
		where = append(where, e.Object)
	}
	s := e.Message
	if len(where) > 0 {
		s = strings.Join(where, ", ") + ": " + s
	}
	if e.Next != "" {
		s += "; " + e.Next
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of err: that of the first *Error in its chain, else Transient. A nil error has no kind; do not ask.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Transient
}

// IsNotFound says that the host itself reported the absence.
func IsNotFound(err error) bool { return err != nil && KindOf(err) == NotFound }

// IsInProgress says that long work goes on in the background.
func IsInProgress(err error) bool { return err != nil && KindOf(err) == InProgress }

// IgnoreNotFound drops NotFound, and keeps every other error.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}
