// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// finalizer is on the Proxy before anything is made for it.
func (r *Reconciler) finalizer(ctx context.Context, p *pass) (bool, error) {
	if controllerutil.ContainsFinalizer(p.proxy, v1alpha1.Finalizer) {
		return true, nil
	}
	return true, r.patchFinalizers(ctx, p, controllerutil.AddFinalizer)
}

// patchFinalizers changes the finalizers of the Proxy as it was read, and of no newer one.
func (r *Reconciler) patchFinalizers(ctx context.Context, p *pass, change func(client.Object, string) bool) error {
	next := p.stored.DeepCopy()
	change(next, v1alpha1.Finalizer)
	if err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(p.stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	p.written(next)
	return nil
}
