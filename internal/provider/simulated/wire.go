// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"errors"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Paths of the requests, each a POST of a request with an answer, both JSON.
const (
	pathAttach      = "/v1/attach"
	pathCreate      = "/v1/create"
	pathGet         = "/v1/get"
	pathDelete      = "/v1/delete"
	pathRetain      = "/v1/retain"
	pathList        = "/v1/list"
	pathLeftovers   = "/v1/leftovers"
	pathReclaim     = "/v1/reclaim"
	pathWatch       = "/v1/watch"
	pathInstances   = "/v1/instances"
	pathFaults      = "/v1/faults"
	pathSetFault    = "/v1/faults/set"
	pathClearFaults = "/v1/faults/clear"
)

// maxRequestBytes bounds a request.
const maxRequestBytes = 1 << 20

// request is what any of the calls takes.
type request struct {
	Owner       Owner
	Ref         provider.InstanceRef
	Spec        *wireSpec           `json:",omitempty"`
	Description *Description        `json:",omitempty"`
	Rule        *Rule               `json:",omitempty"`
	Fault       string              `json:",omitempty"`
	Leftovers   []provider.Leftover `json:",omitempty"`
	DryRun      bool                `json:",omitempty"`
}

// wireSpec is a provider.InstanceSpec whose secrets can be sent. It is never printed.
type wireSpec struct {
	Namespace, Name    string
	Shape              provider.Shape
	Username, Password string
	ControlKey         []byte
}

func (wireSpec) String() string   { return "[redacted]" }
func (wireSpec) GoString() string { return "[redacted]" }

func toWire(s provider.InstanceSpec) *wireSpec {
	return &wireSpec{
		Namespace: s.Namespace, Name: s.Name, Shape: s.Shape, Username: s.Credentials.Username, Password: s.Credentials.Password.Reveal(),
		ControlKey: []byte(s.ControlKey.Reveal()),
	}
}

func (s *wireSpec) spec(ref provider.InstanceRef) provider.InstanceSpec {
	return provider.InstanceSpec{
		InstanceRef: ref, Namespace: s.Namespace, Name: s.Name, Shape: s.Shape, ControlKey: provider.NewSecret(string(s.ControlKey)),
		Credentials: provider.Credentials{Username: s.Username, Password: provider.NewSecret(s.Password)},
	}
}

// answer is what any of the calls gives, and one line of a watch.
type answer struct {
	Error     *wireError          `json:",omitempty"`
	Instance  *provider.Instance  `json:",omitempty"`
	Instances []provider.Instance `json:",omitempty"`
	Leftovers []provider.Leftover `json:",omitempty"`
	// Reclaimed stands beside an Error too.
	Reclaimed []provider.Reclaimed `json:",omitempty"`
	Records   []Record             `json:",omitempty"`
	Rules     []Rule               `json:",omitempty"`
	Event     *Event               `json:",omitempty"`
	Count     int                  `json:",omitempty"`
}

// wireError is a *provider.Error without its cause.
type wireError struct {
	Kind                                string
	Reason, Host, Object, Message, Next string `json:",omitempty"`
	Progress                            int    `json:",omitempty"`
}

func errorToWire(err error) *wireError {
	e := &provider.Error{}
	if !errors.As(err, &e) {
		e.Message = err.Error()
	}
	return &wireError{Kind: e.Kind.String(), Reason: e.Reason, Host: e.Host, Object: e.Object, Message: e.Message, Next: e.Next, Progress: e.Progress}
}

// err is the error again; a kind that this program does not know is Transient.
func (e *wireError) err() *provider.Error {
	back := &provider.Error{Reason: e.Reason, Host: e.Host, Object: e.Object, Message: e.Message, Next: e.Next, Progress: e.Progress}
	for _, kind := range provider.Kinds() {
		if kind.String() == e.Kind {
			back.Kind = kind
		}
	}
	return back
}
