// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// indexSecrets finds the Proxies that depend on a Secret.
const indexSecrets = "secrets"

// CacheOptions keep in memory what the controller needs: of Secrets, the keys that a Proxy can refer to.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Transform: stripSecret}},
	}
}

func stripSecret(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	kept := map[string][]byte{}
	for _, key := range []string{v1alpha1.SecretKeyUsername, v1alpha1.SecretKeyPassword, keyUserData, keyCA} {
		if value, ok := secret.Data[key]; ok {
			kept[key] = value
		}
	}
	secret.Data, secret.ManagedFields, secret.Annotations = kept, nil, nil
	return secret, nil
}

// SetupWithManager registers the controller; at most workers passes run at once.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Proxy{}, indexSecrets, func(o client.Object) []string {
		return secretNames(o.(*v1alpha1.Proxy))
	})
	if err != nil {
		return fmt.Errorf("index Proxies by Secret: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("proxy").
		For(&v1alpha1.Proxy{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.dependents)).
		WatchesRawSource(source.Func(r.wakeup.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: r.Pace.Reconcile}).
		Complete(r)
}

// dependents are the Proxies that depend on a Secret.
func (r *Reconciler) dependents(ctx context.Context, secret client.Object) []reconcile.Request {
	var list v1alpha1.ProxyList
	if err := r.Client.List(ctx, &list, client.InNamespace(secret.GetNamespace()), client.MatchingFields{indexSecrets: secret.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the Proxies of a Secret", "namespace", secret.GetNamespace(), "secret", secret.GetName())
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// Wake has a Proxy looked at soon: the one with that UID, or all of the entry where it is empty. It does not block.
func (r *Reconciler) Wake(entry, uid string) {
	for _, name := range r.notes.names(entry, types.UID(uid)) {
		r.wakeup.add(reconcile.Request{NamespacedName: name})
	}
}

// wakeup is the controller's queue, for those outside of it.
type wakeup struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (w *wakeup) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// add puts a request into the queue. Before there is one, every Proxy is about to be looked at anyway.
func (w *wakeup) add(request reconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(request)
	}
}
