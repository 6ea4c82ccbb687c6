// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

func TestTheStartAndTheEndOfAFetchAreEvents(t *testing.T) {
	var told notedEvents
	r := &Reconciler{Events: &told}
	p := &pass{proxy: &v1alpha1.Proxy{}}
	var before *metav1.Condition
	for _, now := range []metav1.Condition{
		{Reason: v1alpha1.ReasonPending, Message: "no host yet"},
		{Reason: v1alpha1.ReasonFetchingImage, Message: "0%"},
		{Reason: v1alpha1.ReasonFetchingImage, Message: "50%"},
		{Reason: v1alpha1.ReasonTransient, Message: "the mirror stalled"},
		{Reason: v1alpha1.ReasonFetchingImage, Message: "60%"},
		{Reason: v1alpha1.ReasonReady, Message: "runs"},
	} {
		r.announceFetch(p, before, &now)
		before = &now
	}
	r.announceFetch(p, before, nil)
	want := []string{"0%", "the wait for the image is over: Transient: the mirror stalled", "60%", "the wait for the image is over: Ready: runs"}
	if diff := cmp.Diff(want, told.notes); diff != "" {
		t.Error(diff)
	}
}
