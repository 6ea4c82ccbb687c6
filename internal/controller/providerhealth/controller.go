// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// +kubebuilder:rbac:groups=egressproxies.dev,resources=providerhealths,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=egressproxies.dev,resources=providerhealths/status,verbs=patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// DefaultPoll is how often each entry is looked at when nothing tells of a change.
const DefaultPoll = 30 * time.Second

// soon is when a pass that met newer data is repeated.
const soon = 250 * time.Millisecond

// Entry is an entry of the providers file in force.
type Entry struct {
	// Type of provider.
	Type string
	// PrePull are the images that its hosts shall hold.
	PrePull []string
	// Provider of the entry; nil where there is none any more, as the operator ends.
	Provider provider.Provider
}

// Reconciler keeps the ProviderHealths.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Entries in force, by name. It may wait for the first.
	Entries func() map[string]Entry
	Events  events.EventRecorder
	Now     func() time.Time
	Poll    time.Duration

	pulls  pulls
	wakeup wakeup
}

// Reconcile brings one ProviderHealth up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	entry, there := r.Entries()[request.Name]
	if !there {
		return reconcile.Result{}, r.remove(ctx, request.Name)
	}
	if entry.Provider == nil {
		return reconcile.Result{}, nil
	}
	stored, err := r.object(ctx, request.Name)
	if apierrors.IsAlreadyExists(err) { // the cache does not show it yet
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	states := entry.Provider.Hosts()
	images := r.pull(ctx, request.Name, entry, states)
	next := stored.DeepCopy()
	next.Status = statusOf(entry.Type, stored.Status, states, images, r.Now())
	if !equality.Semantic.DeepEqual(stored.Status, next.Status) {
		// With the lock, as the collector writes a condition and a part of its own.
		err = r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted by hand, or newer than the cache
		return reconcile.Result{RequeueAfter: soon}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("write the status: %w", err)
	}
	r.announce(stored, next)
	return reconcile.Result{RequeueAfter: r.Poll}, nil
}

// object is the entry's ProviderHealth, made where there is none.
func (r *Reconciler) object(ctx context.Context, name string) (*v1alpha1.ProviderHealth, error) {
	object := &v1alpha1.ProviderHealth{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, object)
	if !apierrors.IsNotFound(err) {
		return object, err
	}
	object.Name = name
	return object, r.Client.Create(ctx, object)
}

// remove deletes the ProviderHealth of an entry that is gone.
func (r *Reconciler) remove(ctx context.Context, name string) error {
	object := &v1alpha1.ProviderHealth{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, object))
}
