// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
)

// Kind is what a caller decides by. The set is closed.
type Kind int

// Kinds. The zero value is Transient: an error that nobody classified is tried again.
const (
	// Transient: may succeed when tried again.
	Transient Kind = iota
	// Permanent: will not succeed until somebody changes the source, or what it serves.
	Permanent
	// Capacity: no room at the destination; sinks report it.
	Capacity
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case Transient:
		return "Transient"
	case Permanent:
		return "Permanent"
	case Capacity:
		return "Capacity"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// Error is a failure of a known kind. Sinks return it too, where they know the kind.
type Error struct {
	Kind Kind
	// Message says what happened, without secrets and with redacted URLs.
	Message string
	// Next says what to do; empty when there is nothing to do but wait.
	Next string
	// Err is the cause, or nil. Its text is not part of the message.
	Err error
}

// Error is one sentence: what happened, and what to do.
func (e *Error) Error() string {
	if e.Next == "" {
		return e.Message
	}
	return e.Message + "; " + e.Next
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of the first *Error in err's chain, else Transient.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Transient
}

func permanent(next, format string, args ...any) *Error {
	return &Error{Kind: Permanent, Message: fmt.Sprintf(format, args...), Next: next}
}

func transient(cause error, format string, args ...any) *Error {
	return &Error{Kind: Transient, Message: fmt.Sprintf(format, args...), Err: cause}
}
