// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// actionWatch is what the events say that was done.
const actionWatch = "Watch"

// announce writes an event for each host whose reason changed.
func (r *Reconciler) announce(stored, next *v1alpha1.ProviderHealth) {
	before := map[string]string{}
	for _, h := range stored.Status.Hosts {
		before[h.Name] = h.Reason
	}
	for _, h := range next.Status.Hosts {
		old, known := before[h.Name]
		if old == h.Reason || h.Reason == provider.HostUnknown {
			continue
		}
		if h.Reason == provider.HostReady {
			if known && old != provider.HostUnknown {
				r.Events.Eventf(next, nil, corev1.EventTypeNormal, h.Reason, actionWatch, "host %s takes instances again", h.Name)
			}
			continue
		}
		r.Events.Eventf(next, nil, corev1.EventTypeWarning, h.Reason, actionWatch, "%s", bounded("host "+h.Name+": "+h.Message, maxMessage))
	}
}
