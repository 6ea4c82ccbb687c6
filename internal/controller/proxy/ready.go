// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// summarise sets Ready, Reconciling and Stalled by the other conditions, and the generation that all of them speak of.
func (p *pass) summarise() {
	conditions := &p.proxy.Status.Conditions
	for _, kind := range []string{v1alpha1.ConditionHealthy, v1alpha1.ConditionExitVerified} {
		if meta.FindStatusCondition(*conditions, kind) == nil {
			p.condition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotProbed, "not probed yet")
		}
	}
	status, reason, message := readiness(*conditions, p.proxy.Spec.Cordoned)
	p.condition(v1alpha1.ConditionReady, status, reason, message)

	p.kstatus(v1alpha1.ConditionStalled, p.stalledReason, p.stalledMessage)
	working := ""
	if p.stalledReason == "" && status != metav1.ConditionTrue && !restful(reason) {
		working = v1alpha1.ReasonProgressing
	}
	p.kstatus(v1alpha1.ConditionReconciling, working, message)

	p.proxy.Status.ObservedGeneration = p.proxy.Generation
	for i := range *conditions {
		(*conditions)[i].ObservedGeneration = p.proxy.Generation
	}
}

// kstatus sets a condition that is present only while it is True.
func (p *pass) kstatus(kind, reason, message string) {
	if reason == "" {
		meta.RemoveStatusCondition(&p.proxy.Status.Conditions, kind)
		return
	}
	p.condition(kind, metav1.ConditionTrue, reason, message)
}

// readiness is Ready by the other conditions: the first that is not True decides.
func readiness(conditions []metav1.Condition, cordoned bool) (metav1.ConditionStatus, string, string) {
	for _, kind := range []string{v1alpha1.ConditionProvisioned, v1alpha1.ConditionHealthy, v1alpha1.ConditionExitVerified} {
		c := meta.FindStatusCondition(conditions, kind)
		switch {
		case c == nil:
			return metav1.ConditionFalse, v1alpha1.ReasonPending, kind + " is not known yet"
		case c.Status != metav1.ConditionTrue:
			return metav1.ConditionFalse, c.Reason, c.Message
		}
	}
	if cordoned {
		return metav1.ConditionFalse, v1alpha1.ReasonCordoned, "spec.cordoned keeps it out of rotation"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonReady, "in rotation"
}

// restful reasons of not being ready are not worked on.
func restful(reason string) bool {
	return reason == v1alpha1.ReasonCordoned || reason == v1alpha1.ReasonExitMismatch
}

// asked reasons of not being ready are what somebody wanted.
func asked(reason string) bool {
	return reason == v1alpha1.ReasonCordoned || reason == v1alpha1.ReasonDeleting
}

// actionReconcile stands in events for what the operator was doing.
const actionReconcile = "Reconcile"

// announce tells of transitions that a person would act on.
func (r *Reconciler) announce(p *pass) {
	before, after := p.stored.Status.Conditions, p.proxy.Status.Conditions
	ready := meta.FindStatusCondition(after, v1alpha1.ConditionReady)
	switch was := meta.IsStatusConditionTrue(before, v1alpha1.ConditionReady); {
	case !was && ready.Status == metav1.ConditionTrue:
		r.Events.Eventf(p.proxy, nil, corev1.EventTypeNormal, v1alpha1.ReasonReady, actionReconcile, "%s",
			fmt.Sprintf("in rotation at %s, exit %s", p.proxy.Status.Endpoint, listed(p.proxy.Status.ExitIPs)))
	case was && ready.Status != metav1.ConditionTrue && asked(ready.Reason):
		r.Events.Eventf(p.proxy, nil, corev1.EventTypeNormal, ready.Reason, actionReconcile, "%s", ready.Message)
	case was && ready.Status != metav1.ConditionTrue:
		r.warn(p, ready.Reason, ready.Message)
	}
	r.announceFetch(p, meta.FindStatusCondition(before, v1alpha1.ConditionProvisioned), meta.FindStatusCondition(after, v1alpha1.ConditionProvisioned))
	stalled := meta.FindStatusCondition(after, v1alpha1.ConditionStalled)
	if stalled == nil {
		return
	}
	if old := meta.FindStatusCondition(before, v1alpha1.ConditionStalled); old == nil || old.Reason != stalled.Reason {
		r.warn(p, stalled.Reason, stalled.Message)
	}
}

// announceFetch tells when the Proxy starts to wait for an image, and what came of it.
func (r *Reconciler) announceFetch(p *pass, before, after *metav1.Condition) {
	was := before != nil && before.Reason == v1alpha1.ReasonFetchingImage
	is := after != nil && after.Reason == v1alpha1.ReasonFetchingImage
	if was == is || after == nil {
		return
	}
	message := after.Message
	if was {
		message = "the wait for the image is over: " + after.Reason + ": " + message
	}
	r.Events.Eventf(p.proxy, nil, corev1.EventTypeNormal, v1alpha1.ReasonFetchingImage, actionReconcile, "%s", bounded(message))
}

func (r *Reconciler) warn(p *pass, reason, message string) {
	r.Events.Eventf(p.proxy, nil, corev1.EventTypeWarning, reason, actionReconcile, "%s", bounded(message))
}
