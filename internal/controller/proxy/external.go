// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// external takes over the address of a proxy that somebody else runs.
func (r *Reconciler) external(ctx context.Context, p *pass) (bool, error) {
	if tls := p.proxy.Spec.External.TLS; tls != nil && tls.CASecretRef != nil {
		secret, err := r.secret(ctx, p, tls.CASecretRef.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if p.ca = string(secret.Data[keyCA]); err != nil || p.ca == "" {
			p.credentials = nil // the probes go on as they were, for without its CA each would fail
			return r.refuseSecret(p, "spec.external.tls.caSecretRef: namespace %s needs a Secret %s with the key %s", p.proxy.Namespace, tls.CASecretRef.Name, keyCA)
		}
	}
	p.proxy.Status.Endpoint = p.proxy.Spec.External.Address
	p.inForce(!p.shownInForce(), 0)
	p.provisioned(metav1.ConditionTrue, v1alpha1.ReasonExternal, "somebody else runs it at "+p.proxy.Spec.External.Address)
	return true, nil
}
