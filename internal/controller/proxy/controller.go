// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// +kubebuilder:rbac:groups=egressproxies.dev,resources=proxies,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=egressproxies.dev,resources=proxies/status,verbs=patch
// +kubebuilder:rbac:groups=egressproxies.dev,resources=proxies/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Set is a providers file in force, with the providers made from it.
type Set struct {
	File *config.File
	// Providers by the name of their entry.
	Providers map[string]provider.Provider
}

// Prober keeps proxies probed.
type Prober interface {
	Watch(key string, t probe.Target, p probe.Policy, known probe.Health)
	Forget(key string)
	Health(key string) (probe.Health, bool)
}

// Guest reaches our agent in a running guest.
type Guest interface {
	// Ensure makes the agent at an address take the credentials, if it does not have them already. Those that they replace stay valid for the
	// overlap; without one they end, also where an earlier overlap still goes on.
	Ensure(ctx context.Context, agent netip.AddrPort, key provider.Secret, credentials provider.Credentials, overlap time.Duration) (GuestState, error)
}

// GuestState is what an agent has after Ensure.
type GuestState struct {
	// Version of the agent.
	Version string
	// Changed: it had other credentials before.
	Changed bool
	// Previous is how long those before the current ones are still valid.
	Previous time.Duration
}

// Pace is how fast the controller goes.
type Pace struct {
	// Reconcile bounds one pass.
	Reconcile time.Duration
	// Slow is when something that waits for people is looked at again.
	Slow time.Duration
	// Retry and RetryMax bound the backoff after a failure.
	Retry, RetryMax time.Duration
}

// DefaultPace is the pace of an operator.
var DefaultPace = Pace{Reconcile: time.Minute, Slow: 5 * time.Minute, Retry: time.Second, RetryMax: time.Minute}

// Reconciler makes Proxies what their specs say.
type Reconciler struct {
	// Client reads from the cache, Live does not.
	Client client.Client
	Live   client.Reader
	// Current is the set of providers in force.
	Current  func() Set
	Identity cluster.Identity
	Probes   Prober
	Guest    Guest
	Events   events.EventRecorder
	Now      func() time.Time
	Pace     Pace

	notes  notes
	wakeup wakeup
}

// Reconcile takes one Proxy one step further.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	p, err := r.begin(ctx, request.NamespacedName)
	if err != nil || p == nil {
		return reconcile.Result{}, err
	}
	defer func() { result, err = r.finish(ctx, p, err) }()

	if !p.proxy.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.remove(ctx, p)
	}
	for _, step := range r.steps(p) {
		goOn, err := step(ctx, p)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !goOn {
			break
		}
	}
	r.probe(p)
	return reconcile.Result{}, nil
}

// step does one thing, says so in one condition, and says whether the next step may follow. Its error is the API server's: the pass is
// repeated.
type step func(context.Context, *pass) (goOn bool, err error)

func (r *Reconciler) steps(p *pass) []step {
	if p.proxy.Spec.External != nil {
		return []step{
			r.credentials,
			r.external,
		}
	}
	return []step{
		r.credentials,
		r.resolve,
		r.finalizer,
		r.place,
		r.instance,
		r.address,
		r.drift,
		r.guestCredentials,
	}
}

// begin reads the Proxy; the pass is nil where there is none.
func (r *Reconciler) begin(ctx context.Context, name client.ObjectKey) (*pass, error) {
	var proxy v1alpha1.Proxy
	if err := r.read(ctx, name, &proxy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(name)
			return nil, nil
		}
		return nil, err
	}
	r.notes.of(proxy.UID, func(n *note) { n.placed(&proxy, r.Current().File) })
	return newPass(&proxy, r.Current(), r.Now()), nil
}

// read takes the Proxy from the cache, or from the API server where the cache has not seen our last write yet: a status that is compared with
// the one before last would not be written, and nothing would wake the Proxy then.
func (r *Reconciler) read(ctx context.Context, name client.ObjectKey, into *v1alpha1.Proxy) error {
	if err := r.Client.Get(ctx, name, into); err != nil {
		return err
	}
	var written string
	r.notes.of(into.UID, func(n *note) { written = n.written })
	if order, err := resourceversion.CompareResourceVersion(into.ResourceVersion, written); err == nil && order < 0 {
		return r.Live.Get(ctx, name, into)
	}
	return nil // an error: nothing was written yet
}

// forget drops what is remembered of a Proxy that is gone.
func (r *Reconciler) forget(name client.ObjectKey) {
	for _, uid := range r.notes.drop(name) {
		r.Probes.Forget(string(uid))
	}
}
