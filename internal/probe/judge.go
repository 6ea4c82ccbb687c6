// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net/netip"
)

// Result is what became of one request through a proxy.
type Result int

// Results.
const (
	// NotTried: it did not come to that.
	NotTried Result = iota
	// Closed: the proxy's host said that nothing listens there.
	Closed
	// Unreachable: no connection to the proxy came about, and nobody said why.
	Unreachable
	// Refused: the proxy wants (other) credentials.
	Refused
	// Served: the reflector answered through the proxy.
	Served
	// Broken: the proxy took the connection, and the request came to nothing.
	Broken
)

// Attempt is one request through a proxy.
type Attempt struct {
	Result Result
	// Exit that the reflector saw; valid with Served only.
	Exit netip.Addr
	// Detail for people: the error, without addresses of clients and without credentials.
	Detail string
}

// Control says whether a reflector answers the operator itself.
type Control int

// Controls.
const (
	// NotAsked: the reflector was not asked.
	NotAsked Control = iota
	// Answers: a reflector answers the operator directly.
	Answers
	// Silent: no reflector does.
	Silent
)

// Observation is everything that one probe saw.
type Observation struct {
	// With and Without credentials.
	With, Without Attempt
	Control       Control
	// ControlDetail for people, with Silent.
	ControlDetail string
}

// needsControl says whether a failure might be the reflector's, or the operator's own network's. What the proxy or its host said itself
// needs none.
func (o Observation) needsControl() bool {
	for _, a := range []Attempt{o.With, o.Without} {
		if a.Result == Unreachable || a.Result == Broken {
			return true
		}
	}
	return false
}

// Judge says what an observation means.
func Judge(o Observation) Verdict {
	if o.needsControl() && o.Control == Silent {
		return Verdict{Reason: ReflectorDown, Message: fmt.Sprintf(
			"no reflector answers the operator directly either (%s), so nothing is held against the proxy (%s); check the reflectors of the providers file and the operator's network",
			o.ControlDetail, firstDetail(o))}
	}
	switch o.With.Result {
	case Closed, Unreachable:
		return Verdict{Reason: PortClosed, Message: "no connection to the proxy: " + o.With.Detail}
	case Refused:
		return Verdict{Reason: AuthFailed, Message: "the proxy refuses the credentials: " + o.With.Detail}
	case Served:
		return judgeWithout(o)
	}
	return Verdict{Reason: EgressFailed, Message: "the proxy does not reach the reflector: " + o.With.Detail}
}

// judgeWithout judges a proxy that serves valid credentials by what it does without.
func judgeWithout(o Observation) Verdict {
	switch o.Without.Result {
	case Refused:
		return Verdict{Reason: Succeeded, Message: "requests go through, and without credentials they are refused", Exit: o.With.Exit}
	case Served:
		return Verdict{Reason: OpenProxy, Message: "the proxy serves requests without credentials: close it, or make it ask for them"}
	case Closed, Unreachable:
		return Verdict{Reason: PortClosed, Message: "the proxy's second connection failed: " + o.Without.Detail}
	}
	return Verdict{Reason: EgressFailed, Message: "the proxy neither refused nor served a request without credentials: " + o.Without.Detail}
}

func firstDetail(o Observation) string {
	if o.With.Detail != "" {
		return o.With.Detail
	}
	return o.Without.Detail
}
