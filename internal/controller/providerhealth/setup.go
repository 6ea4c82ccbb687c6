// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// workers is how many entries are looked at at once.
const workers = 4

// SetupWithManager registers the controller. Entries are first asked for once it runs.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Of what others do to the objects, only their coming and going matters: the status is ours.
	comeAndGo := predicate.Funcs{UpdateFunc: func(event.TypedUpdateEvent[client.Object]) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("providerhealth").
		For(&v1alpha1.ProviderHealth{}, builder.WithPredicates(comeAndGo)).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: 2 * pullTime}).
		Complete(r)
}

// start has every entry looked at.
func (r *Reconciler) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.wakeup.set(queue)
	for name := range r.Entries() {
		r.wakeup.add(name)
	}
	return nil
}

// Wake has an entry looked at soon, where what a provider.Watcher told may concern its hosts: uid is not a Proxy's. It does not block.
func (r *Reconciler) Wake(entry, uid string) {
	if _, ofProxy := provider.CanonicalUID(uid); !ofProxy {
		r.wakeup.add(entry)
	}
}

// wakeup is the controller's queue, for those outside of it.
type wakeup struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (w *wakeup) set(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
}

// add puts an entry into the queue. Before there is one, every entry is about to be looked at anyway.
func (w *wakeup) add(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		request := reconcile.Request{}
		request.Name = name
		w.queue.Add(request)
	}
}
