// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// wait is how a failure is waited out.
type wait int

const (
	// waitRetry: again after a backoff.
	waitRetry wait = iota
	// waitWork: work goes on; look again after a part of its age.
	waitWork
	// waitPeople: somebody has to change something; look again slowly.
	waitPeople
)

// outcome is what a provider's error means for a Proxy.
type outcome struct {
	reason, message string
	wait            wait
	// absent: the host itself said that the instance is not there, or is not ours. Every other error says nothing about it.
	absent bool
}

// outcomeOf is the one place where the kind of an error decides.
func outcomeOf(err error) outcome {
	o := outcome{reason: reasonOf(err), message: err.Error()}
	switch provider.KindOf(err) {
	case provider.InProgress:
		o.wait = waitWork
		if o.reason == provider.InProgress.String() {
			o.reason = v1alpha1.ReasonFetchingImage
		}
	case provider.Conflict:
		o.wait, o.absent = waitPeople, true
	case provider.Unauthorized, provider.Permanent:
		o.wait = waitPeople
	case provider.NotFound:
		o.absent = true
		if o.reason == provider.NotFound.String() {
			o.reason = v1alpha1.ReasonTransient
		}
	case provider.Capacity, provider.Transient:
	}
	return o
}

// failed shows an outcome on the condition Provisioned, and asks for the next look.
func (r *Reconciler) failed(p *pass, status metav1.ConditionStatus, o outcome) {
	p.provisioned(status, o.reason, o.message)
	if o.wait == waitPeople && status != metav1.ConditionTrue {
		p.stall(o.reason, o.message)
	}
	p.lookAgain(r.waitFor(p, o.wait))
}

func (r *Reconciler) waitFor(p *pass, w wait) time.Duration {
	switch w {
	case waitWork:
		return p.provisionDelay()
	case waitPeople:
		return probe.Jitter(r.Pace.Slow)
	case waitRetry:
	}
	return probe.Jitter(r.retry(p.proxy.UID))
}

// provisionDelay until the next look at an instance that is being made.
func (p *pass) provisionDelay() time.Duration {
	since := p.now
	for _, c := range p.proxy.Status.Conditions {
		if c.Type == v1alpha1.ConditionProvisioned && c.Status != metav1.ConditionTrue {
			since = c.LastTransitionTime.Time
		}
	}
	return provisionDelay(p.now.Sub(since))
}
