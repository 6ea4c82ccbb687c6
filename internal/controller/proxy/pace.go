// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// While something is being provisioned it is looked at again after a part of its age, so that we add little to what it takes anyway.
const (
	minProvision  = 250 * time.Millisecond
	maxProvision  = 5 * time.Second
	provisionPart = 50
)

// provisionDelay until the next look at something that has been in the making for age.
func provisionDelay(age time.Duration) time.Duration {
	return min(max(age/provisionPart, minProvision), maxProvision)
}

// backoff after a number of failures in a row, from 1.
func (p Pace) backoff(failures int) time.Duration {
	d := p.Retry
	for range failures - 1 {
		if d *= 2; d >= p.RetryMax {
			return p.RetryMax
		}
	}
	return d
}

// retry is the backoff of a Proxy after one more failure.
func (r *Reconciler) retry(uid types.UID) (delay time.Duration) {
	r.notes.of(uid, func(n *note) {
		n.failures++
		delay = r.Pace.backoff(n.failures)
	})
	return delay
}

// retryGuest is the backoff of a guest that did not take its credentials once more.
func (r *Reconciler) retryGuest(uid types.UID) (delay time.Duration) {
	r.notes.of(uid, func(n *note) {
		n.guestFailures++
		delay = r.Pace.backoff(n.guestFailures)
	})
	return delay
}

func (r *Reconciler) succeeded(uid types.UID) {
	r.notes.of(uid, func(n *note) { n.failures = 0 })
}
