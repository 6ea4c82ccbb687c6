// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// guestTime bounds what a pass waits for a guest.
const guestTime = 3 * time.Second

// guestCredentials hands changed credentials to the running guest. What a guest has is known from its seed and its probes, so that it is
// asked only when the Secret changed, or when it refuses.
func (r *Reconciler) guestCredentials(ctx context.Context, p *pass) (bool, error) {
	if p.instance.Shape.Software != provider.SoftwareAgent {
		return true, nil
	}
	var known provider.Credentials
	r.notes.of(p.proxy.UID, func(n *note) { known = n.guestHas })
	health, _ := r.Probes.Health(string(p.proxy.UID))
	if !mustTell(known, *p.credentials, health) {
		return true, nil
	}
	agent, err := netip.ParseAddrPort(p.proxy.Status.Endpoint)
	if err != nil {
		return false, fmt.Errorf("status.endpoint: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	version, err := r.Guest.Ensure(ctx, agent, p.spec.ControlKey, *p.credentials)
	if err != nil {
		p.behind = true
		p.drifted(fmt.Sprintf("auth.secretRef: the running guest did not take the credentials of Secret %s: %s", secretName(p.proxy), lasting(err)))
		p.lookAgain(probe.Jitter(r.retryGuest(p.proxy.UID)))
		return true, nil
	}
	p.proxy.Status.AgentVersion = version
	r.notes.of(p.proxy.UID, func(n *note) { n.guestHas, n.guestFailures = *p.credentials, 0 })
	return true, nil
}

// ownAddress of a connection stands in the errors of package net.
var ownAddress = regexp.MustCompile(`\S+:\d+->`)

// lasting is an error's text without our own address, whose port is another at each attempt: each new text would be a write.
func lasting(err error) string {
	return ownAddress.ReplaceAllString(err.Error(), "")
}

// mustTell says whether a guest has to be told its credentials: it is known to have others, or it just refused these.
func mustTell(known, wanted provider.Credentials, h probe.Health) bool {
	if h.Last == probe.AuthFailed {
		return true
	}
	return known != (provider.Credentials{}) && known != wanted
}
