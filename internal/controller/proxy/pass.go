// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

const (
	// statusTime bounds the writing of the status, also of a pass whose own time is over.
	statusTime = 10 * time.Second
	// soon is when a pass that met newer data is repeated.
	soon = 250 * time.Millisecond
	// maxMessage is how much of a message a condition or an event shows, in bytes.
	maxMessage = 1024
)

// pass is one reconciliation of one Proxy: what its steps learn from each other.
type pass struct {
	now time.Time
	// proxy is what the steps change the status of, stored is what the API server has.
	proxy, stored *v1alpha1.Proxy

	set      Set
	entry    *config.Entry
	provider provider.Provider
	spec     provider.InstanceSpec
	// credentials in force; nil where the Secret has none that can be used.
	credentials *provider.Credentials
	// secretVersion is the resource version of the Secret that they came from.
	secretVersion string
	userData      provider.Secret
	// slots of the entry's address pools that the instance would have, by host.
	slots map[string][]config.Slot
	// exhausted: a host was passed over because its pools have no address left.
	exhausted bool
	// helpless: no host can run the instance until somebody changes it.
	helpless bool
	// ca verifies an external proxy's certificate: PEM.
	ca string

	// placed: this pass wrote the placement, so nothing it read can be out of date, and nothing is on the host yet.
	placed bool
	// found: the host told of the instance in this pass.
	found    bool
	instance provider.Instance
	// noAddress: the guest runs, and its address is not known.
	noAddress bool
	// drift is each field in which the instance is not what the spec asks for.
	drift []string
	// behind: the guest does not have the credentials yet, so the probes go on with those before.
	behind bool

	// stalled says why nothing goes on until somebody changes something; empty otherwise.
	stalledReason, stalledMessage string
	// after is when to look again; the earliest that a step asked for.
	after time.Duration
	// gone: the Proxy has no finalizer of ours any more, so there may be no object to write to.
	gone bool
}

func newPass(proxy *v1alpha1.Proxy, set Set, now time.Time) *pass {
	return &pass{now: now, proxy: proxy.DeepCopy(), stored: proxy, set: set}
}

// lookAgain asks for another pass, at the latest then.
func (p *pass) lookAgain(after time.Duration) {
	if p.after == 0 || after < p.after {
		p.after = after
	}
}

// set a condition.
func (p *pass) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	setCondition(&p.proxy.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: bounded(message),
		ObservedGeneration: p.proxy.Generation, LastTransitionTime: metav1.NewTime(p.now),
	})
}

// provisioned sets the condition Provisioned.
func (p *pass) provisioned(status metav1.ConditionStatus, reason, message string) {
	p.condition(v1alpha1.ConditionProvisioned, status, reason, message)
}

// stall says that nothing goes on until somebody changes something.
func (p *pass) stall(reason, message string) {
	p.stalledReason, p.stalledMessage = reason, message
}

// refuse says that the spec cannot be carried out. An instance that runs goes on running, and is not called gone.
func (p *pass) refuse(reason, message string, slow time.Duration) {
	p.provisioned(p.unlessRunning(), reason, message)
	p.stall(reason, message)
	p.lookAgain(slow)
}

// unlessRunning is the status of Provisioned after something failed that says nothing about the instance.
func (p *pass) unlessRunning() metav1.ConditionStatus {
	if p.isTrue(v1alpha1.ConditionProvisioned) {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func (p *pass) isTrue(kind string) bool {
	return meta.IsStatusConditionTrue(p.proxy.Status.Conditions, kind)
}

// ref names the instance on the host that the status says.
func (p *pass) ref() provider.InstanceRef {
	return provider.InstanceRef{Host: p.proxy.Status.Host, UID: string(p.proxy.UID)}
}

// finish writes the status, once, if it changed, and says when to look again. It does so even where the pass ran out of time.
func (r *Reconciler) finish(ctx context.Context, p *pass, err error) (reconcile.Result, error) {
	if p.gone {
		return reconcile.Result{RequeueAfter: p.after}, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTime)
	defer cancel()
	if err == nil {
		p.summarise()
		r.announce(p)
		p.releaseConsole()
		if !equality.Semantic.DeepEqual(p.stored.Status, p.proxy.Status) {
			err = client.IgnoreNotFound(r.patchStatus(ctx, p, client.MergeFrom(p.stored)))
		}
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.after}, nil
}

// patchStatus writes the status as it stands.
func (r *Reconciler) patchStatus(ctx context.Context, p *pass, patch client.Patch) error {
	next := p.stored.DeepCopy()
	p.proxy.Status.DeepCopyInto(&next.Status)
	if err := r.Client.Status().Patch(ctx, next, patch); err != nil {
		return err
	}
	p.written(next)
	r.notes.of(next.UID, func(n *note) { n.written = next.ResourceVersion })
	return nil
}

// written takes over what the API server has now; the status that the pass works on stays.
func (p *pass) written(stored *v1alpha1.Proxy) {
	p.stored = stored
	p.proxy.ResourceVersion = stored.ResourceVersion
	p.proxy.Finalizers = stored.Finalizers
}

func bounded(message string) string {
	return text.Shorten(message, maxMessage)
}

// setCondition keeps the time of the last transition, and the order in which conditions first appeared.
func setCondition(conditions *[]metav1.Condition, c metav1.Condition) {
	if old := meta.FindStatusCondition(*conditions, c.Type); old != nil {
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	*conditions = append(*conditions, c)
}
