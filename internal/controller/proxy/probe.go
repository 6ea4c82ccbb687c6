// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
)

// probe keeps the Proxy probed where there is something to probe, and shows what the probes found. It runs at the end of every pass, also
// of one that a step before it broke off: a Proxy is as healthy as its probes say, whatever else is wrong.
func (r *Reconciler) probe(p *pass) {
	key := string(p.proxy.UID)
	if p.proxy.Status.Endpoint == "" {
		r.Probes.Forget(key)
		p.unprobed()
		return
	}
	policy := policyOf(p.set.File.Probe, p.proxy.Spec.Probe)
	if _, watched := r.Probes.Health(key); p.credentials != nil && (!p.behind || !watched) {
		r.Probes.Watch(key, p.probeTarget(), policy, p.remembered())
	}
	p.lookAgain(probe.Jitter(policy.Interval))
	health, watched := r.Probes.Health(key)
	if !watched {
		// Only credentials that cannot be used keep a Proxy from being probed; what the status remembers of it may be long over.
		p.condition(v1alpha1.ConditionHealthy, metav1.ConditionUnknown, v1alpha1.ReasonInvalidSecret, "not probed: "+p.stalledMessage)
		return
	}
	p.doubtAddress(health)
	if health.Reason == "" {
		// An address that was never probed is not healthy; that one was unhealthy before is all that is known of it.
		if c := meta.FindStatusCondition(p.proxy.Status.Conditions, v1alpha1.ConditionHealthy); c == nil || c.Status != metav1.ConditionFalse {
			p.unprobed()
		}
		return
	}
	if health.Last == probe.Succeeded && p.credentials != nil && !p.behind {
		r.notes.of(p.proxy.UID, func(n *note) { n.guestHas = *p.credentials })
	}
	p.showHealth(health)
}

// unprobed: there is nothing that could be healthy.
func (p *pass) unprobed() {
	reason, message := v1alpha1.ReasonNotProbed, "not probed yet"
	if p.noAddress {
		reason, message = v1alpha1.ReasonNoAddress, "the guest has reported no address yet"
	}
	p.condition(v1alpha1.ConditionHealthy, metav1.ConditionUnknown, reason, message)
	p.condition(v1alpha1.ConditionExitVerified, metav1.ConditionUnknown, v1alpha1.ReasonNotProbed, "the exit address is not known yet")
}

// showHealth sets Healthy and ExitVerified. A message is renewed only with its reason: the texts of two failures in a row differ in
// details that are worth no write.
func (p *pass) showHealth(h probe.Health) {
	status := metav1.ConditionFalse
	if h.Healthy {
		status = metav1.ConditionTrue
	}
	message := h.Message
	if c := meta.FindStatusCondition(p.proxy.Status.Conditions, v1alpha1.ConditionHealthy); c != nil && c.Status == status && c.Reason == string(h.Reason) {
		message = c.Message
	}
	p.condition(v1alpha1.ConditionHealthy, status, string(h.Reason), message)
	if !h.Exit.IsValid() {
		p.condition(v1alpha1.ConditionExitVerified, metav1.ConditionUnknown, v1alpha1.ReasonNotProbed, "the exit address is not known yet")
		return
	}
	p.proxy.Status.ExitIPs = []string{h.Exit.String()}
	status, reason, message := verifyExit(h.Exit, p.proxy.Spec.ExpectedExit)
	p.condition(v1alpha1.ConditionExitVerified, status, reason, message)
}

// verifyExit compares an exit address with what is expected of its family.
func verifyExit(exit netip.Addr, expected *v1alpha1.ExpectedExit) (metav1.ConditionStatus, string, string) {
	var networks []string
	if expected != nil {
		networks = expected.IPv4
		if exit.Is6() {
			networks = expected.IPv6
		}
	}
	if len(networks) == 0 {
		return metav1.ConditionTrue, v1alpha1.ReasonExitLearned, "the world sees " + exit.String()
	}
	for _, n := range networks {
		if prefix, err := netip.ParsePrefix(n); err == nil && prefix.Masked().Contains(exit) {
			return metav1.ConditionTrue, v1alpha1.ReasonExitExpected, fmt.Sprintf("the world sees %s, which lies in %s", exit, n)
		}
	}
	return metav1.ConditionFalse, v1alpha1.ReasonExitMismatch, fmt.Sprintf(
		"the world sees %s, which lies in none of spec.expectedExit (%s)", exit, strings.Join(networks, ", "))
}

// probeTarget is the proxy as its clients use it.
func (p *pass) probeTarget() probe.Target {
	t := probe.Target{
		Protocol: probe.HTTP, Address: p.proxy.Status.Endpoint,
		Username: p.credentials.Username, Password: p.credentials.Password, Place: p.proxy.Spec.Provider + "/" + p.proxy.Status.Host,
	}
	for _, reflector := range p.set.File.Reflectors {
		t.Reflectors = append(t.Reflectors, reflector.URL)
	}
	if external := p.proxy.Spec.External; external != nil {
		t.Place = external.Address
		t.Protocol = probe.Protocol(external.Protocol)
		if external.TLS != nil {
			t.ServerName = external.TLS.ServerName
		}
		t.CA = p.ca
	}
	return t
}

// policyOf is the file's policy with what a Proxy overrides.
func policyOf(file config.Probe, own *v1alpha1.Probe) probe.Policy {
	policy := probe.Policy{
		Interval: time.Duration(file.Interval), Timeout: time.Duration(file.Timeout),
		FailureThreshold: file.FailureThreshold, SuccessThreshold: file.SuccessThreshold,
	}
	if own != nil {
		if own.IntervalSeconds > 0 {
			policy.Interval = time.Duration(own.IntervalSeconds) * time.Second
		}
		if own.TimeoutSeconds > 0 {
			policy.Timeout = time.Duration(own.TimeoutSeconds) * time.Second
		}
		policy.FailureThreshold = or(int(own.FailureThreshold), policy.FailureThreshold)
		policy.SuccessThreshold = or(int(own.SuccessThreshold), policy.SuccessThreshold)
	}
	policy.Timeout = min(policy.Timeout, policy.Interval)
	return policy
}

// remembered is what the status still knows of a healthy Proxy's probes after a restart of the operator, which is no reason to doubt it.
func (p *pass) remembered() probe.Health {
	s := &p.stored.Status
	c := meta.FindStatusCondition(p.proxy.Status.Conditions, v1alpha1.ConditionHealthy)
	if c == nil || c.Status != metav1.ConditionTrue || s.Endpoint != p.proxy.Status.Endpoint {
		return probe.Health{}
	}
	h := probe.Health{Proven: true, Healthy: true, Reason: probe.Reason(c.Reason), Message: c.Message}
	if len(s.ExitIPs) > 0 {
		// What cannot be read is learned anew by the next probe.
		h.Exit, _ = netip.ParseAddr(s.ExitIPs[0])
	}
	return h
}
