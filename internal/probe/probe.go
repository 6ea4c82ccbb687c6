// SPDX-License-Identifier: Apache-2.0

// Package probe finds out whether a proxy works: it sends a request through it to a reflector and learns the exit address, sends one
// without credentials, which must be refused, and asks the reflector directly before it blames anybody.
//
// What was observed (Observation) is judged by a pure function (Judge), and what verdicts mean for a proxy's health by another
// (Health.Next). The Scheduler does both for many proxies, with bounded concurrency.
package probe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Protocol is what a proxy speaks to its clients.
type Protocol string

// Protocols.
const (
	HTTP   Protocol = "HTTP"
	HTTPS  Protocol = "HTTPS"
	SOCKS5 Protocol = "SOCKS5"
)

// Target is a proxy and where to go through it.
type Target struct {
	Protocol Protocol
	// Address is host:port.
	Address  string
	Username string
	Password provider.Secret
	// CA holds PEM certificates that an HTTPS proxy's own is verified with; the system's roots when empty.
	CA string
	// ServerName that an HTTPS proxy's certificate must carry; the host of Address when empty.
	ServerName string
	// Place is where the proxy is, as far as failures go: proxies of one place may fail for one cause.
	Place string
	// Reflectors are URLs, http:// or https://; tried in order.
	Reflectors []string
}

func (t Target) sameProxy(o Target) bool {
	return t.Protocol == o.Protocol && t.Address == o.Address
}

func (t Target) equal(o Target) bool {
	return t.sameProxy(o) && t.Username == o.Username && t.Password == o.Password && t.CA == o.CA && t.ServerName == o.ServerName &&
		slices.Equal(t.Reflectors, o.Reflectors)
}

// Reason is a verdict in one word.
type Reason string

// Reasons, as conditions show them.
const (
	Succeeded     Reason = "ProbeSucceeded"
	PortClosed    Reason = "PortClosed"
	AuthFailed    Reason = "AuthFailed"
	OpenProxy     Reason = "OpenProxy"
	EgressFailed  Reason = "EgressFailed"
	ReflectorDown Reason = "ReflectorDown"
	ManyFailing   Reason = "ManyFailing"
)

// Verdict of one probe.
type Verdict struct {
	Reason  Reason
	Message string
	// Exit is the address that the reflector saw; valid with Succeeded only.
	Exit netip.Addr
}

// Policy says how often a proxy is probed, and how many probes decide.
type Policy struct {
	// Interval between two probes of a proxy whose health is known.
	Interval time.Duration
	// Timeout of one probe.
	Timeout time.Duration
	// FailureThreshold and SuccessThreshold are how many probes in a row turn a healthy proxy unhealthy, and back; at least 1.
	FailureThreshold, SuccessThreshold int
}
