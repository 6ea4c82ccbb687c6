// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// remove removes the instance of a Proxy that is being deleted, and then the finalizer. It needs no Secret and no valid spec.
func (r *Reconciler) remove(ctx context.Context, p *pass) error {
	r.Probes.Forget(string(p.proxy.UID))
	p.dropConsole()
	if !controllerutil.ContainsFinalizer(p.proxy, v1alpha1.Finalizer) {
		p.gone = true
		return nil
	}
	// Nothing was made before the placement was written, and a Proxy that was placed meanwhile is not the one that was read.
	if p.proxy.Status.Host == "" {
		return r.release(ctx, p)
	}
	removed, wrong := r.removeInstance(ctx, p)
	if removed {
		return r.release(ctx, p)
	}
	if wrong != nil && p.proxy.Annotations[v1alpha1.AnnotationAbandon] == v1alpha1.AbandonConfirmed {
		r.warn(p, v1alpha1.ReasonAbandoned, fmt.Sprintf("given up; what may be left behind on host %s of entry %s: %s (%s)",
			p.proxy.Status.Host, p.proxy.Spec.Provider, p.leftBehind(), wrong.message))
		return r.release(ctx, p)
	}
	r.showRemoval(p, wrong)
	return nil
}

// release lets the Proxy go.
func (r *Reconciler) release(ctx context.Context, p *pass) error {
	if err := r.patchFinalizers(ctx, p, controllerutil.RemoveFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.gone = true
	r.forget(client.ObjectKeyFromObject(p.proxy))
	return nil
}

// removeInstance says whether the instance is no more (or no more ours), or what is in the way; neither while it is being removed.
func (r *Reconciler) removeInstance(ctx context.Context, p *pass) (removed bool, wrong *outcome) {
	from, unknown := p.providerForRemoval()
	if unknown != "" {
		return false, &outcome{reason: v1alpha1.ReasonDeleteFailed, message: unknown, wait: waitPeople}
	}
	act := from.Delete
	if p.proxy.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		retainer, ok := from.(provider.Retainer)
		if !ok {
			return false, &outcome{
				message: fmt.Sprintf("entry %s cannot retain instances; set spec.deletionPolicy to Delete", p.proxy.Spec.Provider), wait: waitPeople,
			}
		}
		act = func(ctx context.Context, ref provider.InstanceRef) error {
			err := retainer.Retain(ctx, ref)
			if provider.IsNotFound(err) {
				// What was never finished is no instance to retain, and its leavings hold secrets.
				return from.Delete(ctx, ref)
			}
			removed = err == nil
			return err
		}
	}
	switch err := act(ctx, p.ref()); {
	case provider.IsNotFound(err):
		return true, nil
	case err != nil:
		o := outcomeOf(err)
		return false, &o
	}
	return removed, nil
}

// providerForRemoval is who has the instance, or why nobody can be asked.
func (p *pass) providerForRemoval() (provider.Provider, string) {
	entry, ok := p.set.File.Entry(p.proxy.Spec.Provider)
	from, made := p.set.Providers[p.proxy.Spec.Provider]
	switch {
	case !ok || !made:
		return nil, fmt.Sprintf("the providers file has no entry %q any more; it has: %s", p.proxy.Spec.Provider, listed(p.set.File.EntryNames()))
	case knownHost(entry, "status.host", p.proxy.Status.Host) != nil:
		return nil, fmt.Sprintf("entry %s has no host %q any more; it has: %s", entry.Name, p.proxy.Status.Host, listed(entry.HostNames()))
	}
	return from, ""
}

// leftBehind names the instance.
func (p *pass) leftBehind() string {
	if id := p.proxy.Status.ProviderID; id != "" {
		return id
	}
	return "whatever was made for the UID " + string(p.proxy.UID)
}

// showRemoval shows how the removal goes.
func (r *Reconciler) showRemoval(p *pass, wrong *outcome) {
	if wrong == nil {
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonDeleting, fmt.Sprintf("host %s is removing the instance", p.proxy.Status.Host))
		p.lookAgain(p.provisionDelay())
		return
	}
	message := fmt.Sprintf("the instance could not be removed: %s; to give up on it: kubectl annotate proxy -n %s %s %s=%s",
		wrong.message, p.proxy.Namespace, p.proxy.Name, v1alpha1.AnnotationAbandon, v1alpha1.AbandonConfirmed)
	p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonDeleteFailed, message)
	if wrong.wait == waitPeople {
		p.stall(v1alpha1.ReasonDeleteFailed, message)
	}
	p.lookAgain(r.waitFor(p, wrong.wait))
}
