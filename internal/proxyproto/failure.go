// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"syscall"
)

// Failure is why a destination could not be reached, in the terms that both
// HTTP and SOCKS5 can express.
type Failure string

// The failures. Their text goes over the wire in HeaderError.
const (
	FailureGeneral            Failure = "dial-failed"
	FailurePolicy             Failure = "destination-refused"
	FailureName               Failure = "name-not-resolved"
	FailureConnectionRefused  Failure = "connection-refused"
	FailureHostUnreachable    Failure = "host-unreachable"
	FailureNetworkUnreachable Failure = "network-unreachable"
	FailureTimeout            Failure = "timeout"
	// FailureExitGone: what the proxy sends from is not there.
	FailureExitGone Failure = "exit-gone"
	// FailureLoopbackOnly: the proxy sends from a loopback address, from which
	// nothing else is reached.
	FailureLoopbackOnly Failure = "loopback-only"
)

// HeaderError is the header of an HTTP error answer that names the Failure.
const HeaderError = "X-Egress-Error"

// failureError is an error that knows its own Failure, as the policy's
// refusal and the errors of another proxy's answer do.
type failureError interface {
	error
	Failure() Failure
}

// FailureOf classifies an error of a DialFunc.
func FailureOf(err error) Failure {
	var own failureError
	if errors.As(err, &own) {
		return own.Failure()
	}
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		if dns.IsTimeout {
			return FailureTimeout
		}
		return FailureName
	case errors.Is(err, syscall.ECONNREFUSED):
		return FailureConnectionRefused
	case errors.Is(err, syscall.EHOSTUNREACH):
		return FailureHostUnreachable
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return FailureNetworkUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return FailureTimeout
	case errors.As(err, &timeout) && timeout.Timeout():
		return FailureTimeout
	}
	return FailureGeneral
}

// ParseFailure reads the value of HeaderError; what it does not know is
// FailureGeneral.
func ParseFailure(text string) Failure {
	switch f := Failure(text); f {
	case FailurePolicy, FailureName, FailureConnectionRefused, FailureHostUnreachable, FailureNetworkUnreachable, FailureTimeout,
		FailureExitGone, FailureLoopbackOnly:
		return f
	}
	return FailureGeneral
}

// HTTPStatus is the status code that tells a client of the failure.
func (f Failure) HTTPStatus() int {
	switch f {
	case FailurePolicy:
		return http.StatusForbidden
	case FailureTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// Sentence says the failure in words for the person at the client. It names
// no address, for the target is the client's own.
func (f Failure) Sentence() string {
	switch f {
	case FailurePolicy:
		return "This proxy does not connect to that destination: it is not on the public Internet and not in the entry's destinations.allow."
	case FailureName:
		return "The destination's name could not be resolved from the proxy."
	case FailureConnectionRefused:
		return "The destination refused the connection."
	case FailureHostUnreachable:
		return "The destination host cannot be reached from the proxy."
	case FailureNetworkUnreachable:
		return "The proxy has no route to the destination's network (is the address IPv6, and the proxy without IPv6?)."
	case FailureTimeout:
		return "The destination did not answer in time."
	case FailureExitGone:
		return "The address or interface that this proxy sends from is not there now, and it sends from no other: the Proxy's condition Provisioned says more."
	case FailureLoopbackOnly:
		return "This proxy sends from a loopback address, so it reaches only destinations on its own machine's loopback (127.0.0.0/8, or ::1)."
	}
	return "The proxy could not connect to the destination."
}

// SOCKS5Reply is the reply code (RFC 1928, section 6) of the failure.
func (f Failure) SOCKS5Reply() byte {
	switch f {
	case FailurePolicy:
		return 2
	case FailureNetworkUnreachable, FailureLoopbackOnly:
		return 3
	case FailureName, FailureHostUnreachable:
		return 4
	case FailureConnectionRefused:
		return 5
	case FailureTimeout:
		return 6
	}
	return 1
}

// FailureOfSOCKS5Reply is the inverse of SOCKS5Reply.
func FailureOfSOCKS5Reply(code byte) Failure {
	switch code {
	case 2:
		return FailurePolicy
	case 3:
		return FailureNetworkUnreachable
	case 4:
		return FailureHostUnreachable
	case 5:
		return FailureConnectionRefused
	case 6:
		return FailureTimeout
	}
	return FailureGeneral
}
