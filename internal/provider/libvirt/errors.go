// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

// HostError is what a Backend returns when it cannot ask its daemon at all. It says nothing about what the host holds.
type HostError struct {
	// Reason is provider.HostUnreachable, HostTimeout, HostUnauthorized, or HostIncapable where something on the host or in the
	// configuration has to be changed first.
	Reason string
	// Message says what happened, and Next what to do, or is empty.
	Message, Next string
	// Err is the cause, or nil.
	Err error
}

// Error is the message.
func (e *HostError) Error() string { return e.Message }

// Unwrap gives the cause.
func (e *HostError) Unwrap() error { return e.Err }

// maxDaemonText bounds what is shown of a text that the host supplied.
const maxDaemonText = 300

// IsCode says that err is the daemon's own answer with this code.
func IsCode(err error, code int) bool {
	var d *DaemonError
	return errors.As(err, &d) && d.Code == code
}

// translate makes err one of the closed kinds. What travels on is a *provider.Error; doing is what was tried.
func translate(host, object, doing string, err error) *provider.Error {
	var done *provider.Error
	if errors.As(err, &done) {
		return done
	}
	e := &provider.Error{Host: host, Object: object, Err: err}
	var answer *DaemonError
	var hostErr *HostError
	var fetchErr *image.Error
	switch {
	case errors.As(err, &answer):
		v := classify(answer)
		e.Kind, e.Reason, e.Next = v.kind, v.reason, v.next
		e.Message = fmt.Sprintf("%s: libvirt says: %s (error %d)", doing, bounded(answer.Message), answer.Code)
	case errors.As(err, &hostErr):
		e.Kind, e.Reason, e.Next = hostErrorKind(hostErr.Reason), hostErr.Reason, hostErr.Next
		e.Message = fmt.Sprintf("%s: %s", doing, bounded(hostErr.Message))
	case errors.As(err, &fetchErr):
		e.Kind, e.Next, e.Message = fetchErrorKind(fetchErr.Kind), fetchErr.Next, bounded(fetchErr.Message)
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Message = provider.HostTimeout, doing+": the time for it ran out"
	case errors.Is(err, context.Canceled):
		e.Message = doing + ": was cancelled"
	default:
		e.Message = fmt.Sprintf("%s: %s", doing, bounded(err.Error()))
	}
	return e
}

func hostErrorKind(reason string) provider.Kind {
	switch reason {
	case provider.HostUnauthorized:
		return provider.Unauthorized
	case provider.HostIncapable:
		return provider.Permanent
	}
	return provider.Transient
}

func fetchErrorKind(k image.Kind) provider.Kind {
	switch k {
	case image.Permanent:
		return provider.Permanent
	case image.Capacity:
		return provider.Capacity
	}
	return provider.Transient
}

type verdict struct {
	kind   provider.Kind
	reason string
	next   string
}

var (
	noSpaceText   = regexp.MustCompile(`(?i)no space left on device|not enough space|disk quota exceeded`)
	noMemoryText  = regexp.MustCompile(`(?i)cannot allocate memory|cannot set up guest memory`)
	clashText     = regexp.MustCompile(`(?i)already exists with uuid|is already defined with uuid`)
	noBridgeText  = regexp.MustCompile(`(?i)cannot get interface mtu|unable to add bridge`)
	noPermissions = regexp.MustCompile(`(?i)permission denied`)
)

// classify reads an answer of the daemon that no step expected.
func classify(d *DaemonError) verdict {
	switch d.Code {
	case CodeInternal, CodeNoMemory, CodeOperationFailed, CodeSystemError:
		return classifyText(d.Message)
	case CodeNoDomain:
		return verdict{kind: provider.NotFound}
	case CodeNoNetwork, CodeNoStoragePool, CodeNoInterface:
		return verdict{provider.Permanent, provider.HostIncapable, "create it on the host, or name another one in the providers file"}
	case codeOperationDenied, CodeAuthFailed, CodeAccessDenied, codeAuthUnavailable:
		return verdict{provider.Unauthorized, provider.HostUnauthorized, "let the entry's user use libvirt on this host (often: membership of the group libvirt)"}
	case CodeNoSupport, CodeInvalidArg, codeOSType, CodeXMLError, CodeXMLDetail, codeInvalidPool, CodeConfigUnsupported, codeArgumentUnsupported,
		codeCPUIncompatible, codeInvalidSchema:
		return verdict{kind: provider.Permanent, next: "change the spec, the entry or the host"}
	}
	return verdict{kind: provider.Transient}
}

func classifyText(text string) verdict {
	switch {
	case noSpaceText.MatchString(text):
		return verdict{kind: provider.Capacity, next: "make room in the pool, or use another host"}
	case noMemoryText.MatchString(text):
		return verdict{kind: provider.Capacity, next: "use a smaller memoryMiB, or another host"}
	case clashText.MatchString(text):
		return verdict{kind: provider.Conflict, next: "rename or remove the other domain"}
	case noBridgeText.MatchString(text):
		return verdict{provider.Permanent, provider.HostIncapable, "create the bridge on the host, or name another one in the providers file"}
	case noPermissions.MatchString(text):
		return verdict{kind: provider.Transient, next: "check that QEMU's user may read the files of the pool"}
	}
	return verdict{kind: provider.Transient}
}

// Numbers that are only classified.
const (
	codeOSType              = 16
	codeOperationDenied     = 29
	codeInvalidPool         = 44
	codeArgumentUnsupported = 74
	codeCPUIncompatible     = 91
	codeInvalidSchema       = 92
	codeAuthUnavailable     = 94
)

// bounded cuts a text to what a message can carry, on one line.
func bounded(s string) string {
	s = text.Line(s)
	if r := []rune(s); len(r) > maxDaemonText {
		return string(r[:maxDaemonText]) + "…"
	}
	return s
}
