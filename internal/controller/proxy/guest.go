// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// guestTime bounds what a pass waits for a guest.
const guestTime = 3 * time.Second

// guestCredentials hands changed credentials to the running guest, and shows which are in force. What a guest has is known from its seed, its
// probes and the status, so that it is asked only when the Secret changed, or when it refuses.
func (r *Reconciler) guestCredentials(ctx context.Context, p *pass) (bool, error) {
	if p.instance.Shape.Software != provider.SoftwareAgent || p.proxy.Status.Credentials == nil {
		p.inForce(false, 0) // those of the seed, or what somebody else's software has
		return true, nil
	}
	p.overlapEnds()
	var known provider.Credentials
	r.notes.of(p.proxy.UID, func(n *note) { known = n.guestHas })
	health, _ := r.Probes.Health(string(p.proxy.UID))
	overlap := p.overlap()
	if !mustTell(known, *p.credentials, health) && p.shownInForce() && (overlap > 0 || p.proxy.Status.Credentials.PreviousUntil == nil) {
		return true, nil
	}
	agent, err := netip.ParseAddrPort(p.proxy.Status.Endpoint)
	if err != nil {
		return false, fmt.Errorf("status.endpoint: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	state, err := r.Guest.Ensure(ctx, agent, p.spec.ControlKey, *p.credentials, overlap)
	if err != nil {
		p.behind = true
		p.drifted(fmt.Sprintf("auth.secretRef: the running guest did not take the credentials of Secret %s: %s", secretName(p.proxy), lasting(err)))
		p.lookAgain(probe.Jitter(r.retryGuest(p.proxy.UID)))
		return true, nil
	}
	p.proxy.Status.AgentVersion = state.Version
	p.inForce(state.Changed, state.Previous)
	r.notes.of(p.proxy.UID, func(n *note) { n.guestHas, n.guestFailures = *p.credentials, 0 })
	return true, nil
}

// overlap is how long the credentials before new ones stay valid.
func (p *pass) overlap() time.Duration {
	if seconds := p.proxy.Spec.CredentialsOverlapSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return v1alpha1.DefaultCredentialsOverlap
}

// shownInForce says whether the status has the Secret, as it is now, as the one in force.
func (p *pass) shownInForce() bool {
	s := &p.proxy.Status
	return s.Credentials != nil && s.CredentialsSecret == secretName(p.proxy) && s.Credentials.SecretVersion == p.secretVersion
}

// inForce shows that the credentials of the Secret, as it is now, are in force, and until when those before them are.
func (p *pass) inForce(changed bool, previous time.Duration) {
	s := &p.proxy.Status
	now := metav1.NewTime(p.now.Truncate(time.Second))
	if s.Credentials == nil || changed {
		s.Credentials = &v1alpha1.CredentialsStatus{Since: &now}
	}
	s.CredentialsSecret, s.Credentials.SecretVersion = secretName(p.proxy), p.secretVersion
	s.Credentials.PreviousUntil = nil
	if previous > 0 {
		until := metav1.NewTime(p.now.Add(previous).Truncate(time.Second))
		s.Credentials.PreviousUntil = &until
	}
	p.overlapEnds()
}

// overlapEnds drops an overlap that is over, or looks again when it will be.
func (p *pass) overlapEnds() {
	c := p.proxy.Status.Credentials
	if c.PreviousUntil == nil {
		return
	}
	left := c.PreviousUntil.Sub(p.now)
	if left <= 0 {
		c.PreviousUntil = nil
		return
	}
	p.lookAgain(left)
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
