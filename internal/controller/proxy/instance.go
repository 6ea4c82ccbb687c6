// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// instance reads the instance, and makes it, or makes it run, where it does not.
func (r *Reconciler) instance(ctx context.Context, p *pass) (bool, error) {
	if !p.placed {
		found, err := p.provider.Get(ctx, p.spec.InstanceRef)
		switch {
		case err == nil:
			p.observe(found)
		case provider.IsNotFound(err):
			return r.absent(ctx, p)
		default:
			r.unread(p, err)
			return false, nil
		}
	}
	if p.found && p.instance.State == provider.StateRunning {
		r.succeeded(p.proxy.UID)
		return true, nil
	}
	return r.create(ctx, p)
}

// observe takes in what the host says.
func (p *pass) observe(i provider.Instance) {
	p.instance, p.found = i, true
	p.proxy.Status.ProviderID, p.proxy.Status.Image, p.proxy.Status.AgentVersion = i.ProviderID, i.Shape.Image.String(), i.AgentVersion
	p.proxy.Status.AssignedAddresses = texts(i.NIC.IPs())
}

// absent makes an instance that the host does not have, on the host that the API server itself says: what the cache has may be older than
// our own last word.
func (r *Reconciler) absent(ctx context.Context, p *pass) (bool, error) {
	var live v1alpha1.Proxy
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(p.proxy), &live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if live.UID != p.proxy.UID || live.Status.Host != p.proxy.Status.Host || !live.DeletionTimestamp.IsZero() {
		return false, apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "proxies"}, p.proxy.Name,
			errors.New("the cache is behind"))
	}
	p.clearInstance()
	r.startsAnew(p)
	pin, host := p.pin(), p.proxy.Status.Host
	misplaced := pin != "" && pin != host
	if !misplaced && !r.wasFull(p, host) {
		return r.create(ctx, p)
	}
	switch m, why, err := r.moveOn(ctx, p); {
	case err != nil || m == leaving:
		return false, err
	case m == nowhere && misplaced:
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonPending, "the pinned host cannot take the instance: "+why)
		p.lookAgain(p.provisionDelay())
		return false, nil
	}
	return r.create(ctx, p)
}

// startsAnew forgets what was known of a guest that runs no longer.
func (r *Reconciler) startsAnew(p *pass) {
	r.Probes.Forget(string(p.proxy.UID))
	r.notes.of(p.proxy.UID, func(n *note) { n.guestHas = provider.Credentials{} })
}

// unread is an instance that could not be asked after: what was known of it stands, unless the host itself said otherwise.
func (r *Reconciler) unread(p *pass, err error) {
	o := outcomeOf(err)
	status := p.unlessRunning()
	switch {
	case o.absent:
		status = metav1.ConditionFalse
	case status == metav1.ConditionTrue:
		o.message = "the last known state stands, for the host could not be asked: " + o.message
	}
	r.failed(p, status, o)
}

// create makes the instance, or makes it run.
func (r *Reconciler) create(ctx context.Context, p *pass) (bool, error) {
	spec := p.spec
	if p.found {
		if p.instance.State == provider.StateCrashed && p.proxy.Spec.Mode == v1alpha1.ModePinned {
			p.refuseDown(r.Pace.Slow)
			return false, nil
		}
		if p.instance.State != provider.StateCrashed {
			spec.Shape = reseeded(p.instance.Shape, p.spec.Shape) // what it was made with; how the spec differs is drift
		}
		if p.instance.State != provider.StatePaused {
			p.clearBoot()
			r.startsAnew(p)
		}
	}
	if !p.placed {
		if goOn, err := r.settleAddresses(ctx, p); !goOn || err != nil {
			return false, err
		}
		spec.NIC = p.spec.NIC
	}
	made, err := p.provider.Create(ctx, spec)
	switch {
	case err == nil && made.State == provider.StateRunning:
		p.observe(made)
		r.succeeded(p.proxy.UID)
		return true, nil
	case err == nil:
		p.observe(made)
		p.provisioned(metav1.ConditionFalse, downReason(made.State), p.down())
		p.lookAgain(probe.Jitter(r.retry(p.proxy.UID)))
		return false, nil
	case provider.KindOf(err) == provider.Capacity && (!p.found || p.movable()), reasonOf(err) == provider.HostIncapable && !p.found:
		return false, r.full(ctx, p, err)
	}
	r.uncreated(p, err)
	return false, nil
}

// movable says of an instance that was found whether it may be made anew on another host: it is off, and nobody pinned it. One that is paused has
// a guest in it that will run on once there is room.
func (p *pass) movable() bool {
	return p.instance.State == provider.StateStopped && p.proxy.Spec.Mode != v1alpha1.ModePinned
}

// full remembers that a host has no room, or lacks something, and leaves it for another where there is one.
func (r *Reconciler) full(ctx context.Context, p *pass, cause error) error {
	r.notes.of(p.proxy.UID, func(n *note) {
		if n.full == nil {
			n.full = map[string]time.Time{}
		}
		n.full[p.proxy.Status.Host] = p.now
	})
	r.uncreated(p, cause)
	m, _, err := r.moveOn(ctx, p)
	if m == moved {
		p.lookAgain(soon)
	}
	return err
}

// uncreated shows why the instance does not run yet.
func (r *Reconciler) uncreated(p *pass, err error) {
	o := outcomeOf(err)
	switch {
	case o.wait == waitWork:
		o.message = r.showProgress(p, o.reason, err)
	case p.found:
		o.reason, o.message = downReason(p.instance.State), p.down()+"; "+o.message
	}
	r.failed(p, metav1.ConditionFalse, o)
}

// refuseDown leaves a crashed guest to people.
func (p *pass) refuseDown(slow time.Duration) {
	reason, message := v1alpha1.ReasonDomainDown, p.down()+"; spec.mode is Pinned, so it is not made anew: delete the Proxy, or set mode Rotating"
	p.provisioned(metav1.ConditionFalse, reason, message)
	p.stall(reason, message)
	p.lookAgain(probe.Jitter(slow))
}

// down says that the instance does not run, and why.
func (p *pass) down() string {
	return fmt.Sprintf("%s is not running (%s): %s", p.instance.ProviderID, p.instance.State, p.instance.StateReason)
}

func downReason(s provider.State) string {
	if s == provider.StatePaused {
		return v1alpha1.ReasonPaused
	}
	return v1alpha1.ReasonDomainDown
}

// Progress is shown in steps, and seldom, for each is a write.
const (
	progressStep  = 10
	progressEvery = 10 * time.Second
)

// showProgress sets status.progress, and returns the message to show: the one of last time where it is too early for another.
func (r *Reconciler) showProgress(p *pass, reason string, err error) string {
	var e *provider.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	shown := p.stored.Status.Progress
	last := meta.FindStatusCondition(p.stored.Status.Conditions, v1alpha1.ConditionProvisioned)
	message := err.Error()
	r.notes.of(p.proxy.UID, func(n *note) {
		if last != nil && last.Reason == reason && p.now.Sub(n.progressAt) < progressEvery {
			p.proxy.Status.Progress, message = shown, last.Message
			return
		}
		n.progressAt = p.now
		p.proxy.Status.Progress = int32(min(max(e.Progress, 0), 100) / progressStep * progressStep)
	})
	return message
}
