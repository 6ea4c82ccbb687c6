// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// fullFor is how long a host that answered Capacity, or that it lacks something, is passed over where others would do.
const fullFor = time.Minute

// place chooses a host, and writes it before anything changes there.
func (r *Reconciler) place(ctx context.Context, p *pass) (bool, error) {
	if p.proxy.Status.Host != "" {
		return true, nil
	}
	host, why, over, err := r.choose(ctx, p)
	if err != nil {
		return false, err
	}
	if over != "" {
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, over)
		p.lookAgain(r.waitFor(p, waitRetry))
		return false, nil
	}
	if host == "" {
		p.provisioned(metav1.ConditionFalse, p.unplaced(), "no host of entry "+p.entry.Name+" can take the instance: "+why)
		p.lookAgain(p.provisionDelay())
		return false, nil
	}
	return true, r.writePlacement(ctx, p, host)
}

// choose picks a host and counts the Proxy there at once, so that several that are placed at the same time spread, and none goes beyond what there
// is. over says how the Proxy would take its namespace beyond its quota, and then nothing is counted.
func (r *Reconciler) choose(ctx context.Context, p *pass) (host, why, over string, err error) {
	if err := r.recall(ctx); err != nil {
		return "", "", "", err
	}
	hosts := p.provider.Hosts()
	seen := make(map[string]time.Time, len(hosts))
	for _, h := range hosts {
		seen[h.Name] = h.PoolSeen
	}
	d := demand{
		pin: p.pin(), memoryMiB: int64(p.spec.MemoryMiB), vcpus: p.spec.VCPUs, image: p.spec.Image.Name, uid: string(p.proxy.UID), avoid: map[string]string{},
	}
	r.notes.of(p.proxy.UID, func(n *note) {
		if over = overQuota(p.entry, p.proxy.Namespace, d, r.notes.usage(p.entry.Name, p.proxy.Namespace, p.proxy.UID)); over != "" {
			return
		}
		for name, at := range n.full {
			if p.now.Sub(at) < fullFor {
				d.avoid[name] = "answered lately that it cannot take it"
			}
		}
		p.helpless = helpless(d, hosts)
		p.slots = r.slots(p, hosts, d.avoid)
		if host, why = choose(d, hosts, r.notes.loads(p.entry.Name, p.proxy.UID, seen)); host != "" {
			n.host, n.addresses = host, addressesOf(p.slots[host])
			n.needs, n.settled = needs{d.vcpus, d.memoryMiB}, time.Time{}
		}
	})
	return host, why, over, nil
}

// needsOf a Proxy are those that its spec asks for, or the entry's defaults.
func needsOf(proxy *v1alpha1.Proxy, file *config.File) needs {
	entry, ok := file.Entry(proxy.Spec.Provider)
	if !ok {
		return needs{}
	}
	placement := v1alpha1.Placement{}
	if proxy.Spec.Placement != nil {
		placement = *proxy.Spec.Placement
	}
	return needs{or(int(placement.VCPUs), entry.Defaults.VCPUs), int64(or(int(placement.MemoryMiB), entry.Defaults.MemoryMiB))}
}

// settledAt is since when the status says that an instance runs; zero where it does not.
func settledAt(proxy *v1alpha1.Proxy) time.Time {
	c := meta.FindStatusCondition(proxy.Status.Conditions, v1alpha1.ConditionProvisioned)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// recall notes, once, where every Proxy is: after a restart, a new Proxy must not take the place of one that was not looked at yet.
func (r *Reconciler) recall(ctx context.Context) error {
	if r.notes.recalled.Load() {
		return nil
	}
	var all v1alpha1.ProxyList
	if err := r.Client.List(ctx, &all); err != nil {
		return err
	}
	file := r.Current().File
	for i := range all.Items {
		one := &all.Items[i]
		r.notes.of(one.UID, func(n *note) {
			if n.name.Name == "" {
				n.placed(one, file)
			}
		})
	}
	r.notes.recalled.Store(true)
	return nil
}

func (p *pass) pin() string {
	if p.proxy.Spec.Placement == nil {
		return ""
	}
	return p.proxy.Spec.Placement.Host
}

// writePlacement writes status.host, with the status as far as it is known, on the condition that nobody changed the Proxy since it was
// read.
func (r *Reconciler) writePlacement(ctx context.Context, p *pass, host string) error {
	p.proxy.Status.Host, p.proxy.Status.AssignedAddresses = host, texts(addressesOf(p.slots[host]))
	p.clearInstance()
	p.stall("", "")
	p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonCreating, "the instance is being made on host "+host)
	p.summarise()
	if err := r.patchStatus(ctx, p, client.MergeFromWithOptions(p.stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	p.spec.Host, p.placed = host, true
	p.spec.NIC = nicOf(p.slots[host])
	return nil
}

// clearInstance drops from the status what belonged to an instance that is no more.
func (p *pass) clearInstance() {
	s := &p.proxy.Status
	s.ProviderID, s.Image, s.AgentVersion, s.Progress, s.Credentials = "", "", "", 0, nil
	p.clearBoot()
}

// clearBoot drops from the status what belonged to a guest that runs no longer: where it was, and that it was healthy.
func (p *pass) clearBoot() {
	s := &p.proxy.Status
	s.IP, s.Endpoint, s.Addresses, s.ExitIPs = "", "", nil, nil
	p.unprobed()
}

// move is how far a Proxy is on its way to another host.
type move int

const (
	// nowhere: no other host will do.
	nowhere move = iota
	// leaving: the old host is not confirmed clean yet.
	leaving
	// moved: the new placement is written.
	moved
)

// moveOn leaves a host for another: the pinned one, or after a refusal any that can take the instance. It does so only once the old host is confirmed
// clean. Where it goes nowhere, it says why.
func (r *Reconciler) moveOn(ctx context.Context, p *pass) (m move, why string, err error) {
	host, why, over, err := r.choose(ctx, p)
	if err != nil {
		return nowhere, "", err
	}
	why = cmp.Or(over, why)
	if host == "" || host == p.proxy.Status.Host {
		r.notes.of(p.proxy.UID, func(n *note) { n.host = p.proxy.Status.Host })
		return nowhere, why, nil
	}
	clean, err := confirmClean(ctx, p.provider, p.ref())
	switch {
	case err != nil:
		o := outcomeOf(err)
		o.message = "before moving to host " + host + ": " + o.message
		r.failed(p, metav1.ConditionFalse, o)
		return leaving, "", nil
	case !clean:
		p.provisioned(metav1.ConditionFalse, v1alpha1.ReasonPending, fmt.Sprintf("moves from host %s, which is being cleaned, to %s", p.proxy.Status.Host, host))
		p.lookAgain(soon)
		return leaving, "", nil
	}
	return moved, "", r.writePlacement(ctx, p, host)
}

// wasFull says whether a host answered lately that it cannot take the instance.
func (r *Reconciler) wasFull(p *pass, host string) (full bool) {
	r.notes.of(p.proxy.UID, func(n *note) {
		at, ok := n.full[host]
		full = ok && p.now.Sub(at) < fullFor
	})
	return full
}

// confirmClean deletes what is left of an instance, and says whether the host confirmed that nothing is.
func confirmClean(ctx context.Context, from provider.Provider, ref provider.InstanceRef) (bool, error) {
	for range 2 {
		err := from.Delete(ctx, ref)
		if provider.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("host %s could not be cleaned: %w", ref.Host, err)
		}
	}
	return false, nil
}

// reasonOf is the condition reason of a provider's error.
func reasonOf(err error) string {
	var e *provider.Error
	if errors.As(err, &e) && e.Reason != "" {
		return e.Reason
	}
	return provider.KindOf(err).String()
}
