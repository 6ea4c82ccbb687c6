// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// locate checks whose instance a call is about.
func locate(o Owner, ref provider.InstanceRef) (call, string, error) {
	uid, ok := provider.CanonicalUID(ref.UID)
	if !ok {
		return call{}, "", permanent(ref.Host, fmt.Sprintf("the UID %q is not a UUID", ref.UID), "name a Proxy's UID")
	}
	return call{owner: o, host: ref.Host, name: instanceName(o.Cluster, uid)}, uid, nil
}

// own is the instance of a call: nil where there is none, Conflict where it is somebody else's.
func (w *World) own(c call, uid string) (*instance, error) {
	i := w.instances[key{c.host, c.name}]
	if i != nil && (i.owner != c.owner || provider.CompactUID(i.uid) != provider.CompactUID(uid)) {
		return nil, conflict(c.host, c.name, fmt.Sprintf("it belongs to cluster %q, entry %q, UID %q", i.owner.Cluster, i.owner.Entry, i.uid))
	}
	return i, nil
}

// proxyOf is the name of the Proxy of an instance that exists, so that the faults of that name count.
func (w *World) proxyOf(c call) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.instances[key{c.host, c.name}]; i != nil {
		return i.proxyName
	}
	return ""
}

// about lets a call about one instance through to its host, and does it: do gets nil where there is none. proxy is the name of the Proxy
// whose own faults of hosts count too; empty: none.
func (w *World) about(ctx context.Context, o Owner, ref provider.InstanceRef, proxy func(call) string, do func(call, *instance) error) error {
	c, uid, err := locate(o, ref)
	if err != nil {
		return err
	}
	c.proxy = proxy(c)
	if err := w.enter(ctx, c); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i, err := w.own(c, uid)
	if err != nil {
		return err
	}
	return do(c, i)
}

// noProxy: only the faults of the host itself count.
func noProxy(call) string { return "" }

// Get reads the instance.
func (w *World) Get(ctx context.Context, o Owner, ref provider.InstanceRef) (found provider.Instance, err error) {
	err = w.about(ctx, o, ref, w.proxyOf, func(c call, i *instance) error {
		if i == nil {
			return absent(c.host, c.name)
		}
		found = i.view()
		return nil
	})
	return found, err
}

// Delete removes the instance, and returns NotFound once it is gone. The faults of hosts that a Proxy has by itself do not hold here:
// what was made for a lesson can be removed.
func (w *World) Delete(ctx context.Context, o Owner, ref provider.InstanceRef) error {
	return w.about(ctx, o, ref, noProxy, func(c call, i *instance) error {
		delete(w.attempts, key{c.host, c.name})
		if i == nil {
			return absent(c.host, c.name)
		}
		return w.remove(i)
	})
}

// remove takes an instance away, as fast as its faults let it.
func (w *World) remove(i *instance) error {
	faults, now := w.faultsOf(i.owner, i.key.host, i.proxyName), w.clock.Now()
	if i.deleteAsked.IsZero() {
		i.deleteAsked = now
	}
	switch {
	case faults[config.FaultDeleteFails] && now.Sub(i.deleteAsked) < deleteFailsFor:
		return faulty(provider.Transient, i.key.host, objectOf(i.key.name), config.FaultDeleteFails, "the instance cannot be removed now")
	case faults[config.FaultSlowDelete]:
		if i.goneAt.IsZero() {
			i.goneAt = now.Add(slowDeleteTime)
			w.review(i)
		}
		return nil
	}
	w.log.Info("instance removed", "host", i.key.host, "instance", i.key.name, "proxy", i.namespace+"/"+i.proxyName)
	w.forget(i)
	w.tell(i.owner, "")
	return nil
}

// Retain marks the instance as retained; it is done again without harm.
func (w *World) Retain(ctx context.Context, o Owner, ref provider.InstanceRef) error {
	return w.about(ctx, o, ref, noProxy, func(c call, i *instance) error {
		if i == nil {
			return absent(c.host, c.name)
		}
		i.retained = true
		return nil
	})
}

// List returns every instance of the owner on the hosts that it described: complete, or an error.
func (w *World) List(ctx context.Context, o Owner) ([]provider.Instance, error) {
	w.mu.Lock()
	d, attached := w.owners[o]
	w.mu.Unlock()
	if !attached {
		return nil, w.enter(ctx, call{owner: o})
	}
	hosts := map[string]bool{}
	group, asking := errgroup.WithContext(ctx)
	for _, h := range d.Hosts {
		hosts[h.Name] = true
		group.Go(func() error { return w.enter(asking, call{owner: o, host: h.Name}) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []provider.Instance
	for _, i := range w.sorted() {
		if i.owner == o && hosts[i.key.host] && i.key.name == instanceName(o.Cluster, i.uid) {
			all = append(all, i.view())
		}
	}
	return all, nil
}
