// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// waitOut is what to do about a fault that somebody chose.
const waitOut = "it was asked for: take the fault away to go on"

// faulty is the error of a simulated fault.
func faulty(kind provider.Kind, host, object, fault, message string) *provider.Error {
	return &provider.Error{Kind: kind, Host: host, Object: object, Message: fmt.Sprintf("%s (simulated fault %s)", message, fault), Next: waitOut}
}

func permanent(host, message, next string) *provider.Error {
	return &provider.Error{Kind: provider.Permanent, Host: host, Message: message, Next: next}
}

func absent(host, name string) *provider.Error {
	return &provider.Error{Kind: provider.NotFound, Host: host, Object: objectOf(name), Message: "the host has no such instance"}
}

func conflict(host, name, why string) *provider.Error {
	return &provider.Error{
		Kind: provider.Conflict, Host: host, Object: objectOf(name), Message: why + "; it is left alone", Next: "have its owner delete it",
	}
}

func objectOf(name string) string { return "instance " + name }

// ended is the error of a call that its caller, or the end of the World, cut off.
func ended(ctx context.Context, host string) *provider.Error {
	e := &provider.Error{Kind: provider.Transient, Host: host, Message: "the simulator ends"}
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Message, e.Err = provider.HostTimeout, "no answer in time", err
	case err != nil:
		e.Message, e.Err = "the call was cancelled", err
	}
	return e
}

// asError makes every error a *provider.Error.
func asError(err error) error {
	var known *provider.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &provider.Error{Kind: provider.Transient, Message: err.Error(), Err: err}
}
