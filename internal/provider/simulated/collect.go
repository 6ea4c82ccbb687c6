// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Leftovers are all instances of the owner on a host, and those of others as what is foreign: complete, or an error.
func (w *World) Leftovers(ctx context.Context, o Owner, host string) ([]provider.Leftover, error) {
	if err := w.enter(ctx, call{owner: o, host: host}); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []provider.Leftover
	for _, i := range w.sorted() {
		if i.key.host == host {
			all = append(all, i.leftover(o))
		}
	}
	return all, nil
}

// leftover is what an instance is to the collector of an owner.
func (i *instance) leftover(o Owner) provider.Leftover {
	switch {
	case i.owner.Cluster != o.Cluster:
		return provider.Leftover{Kind: provider.LeftoverForeign, Object: i.key.name, Why: "it is of another cluster"}
	case i.owner != o:
		return provider.Leftover{Kind: provider.LeftoverForeign, Object: i.key.name, Entry: i.owner.Entry, Why: "its mark names entry " + i.owner.Entry}
	case i.key.name != instanceName(o.Cluster, i.uid):
		return provider.Leftover{Kind: provider.LeftoverForeign, Object: i.key.name, Why: "no instance of this cluster has that name"}
	}
	return provider.Leftover{
		Kind: provider.LeftoverInstance, Object: i.key.name, UID: provider.CompactUID(i.uid), Retained: i.retained,
		Why: fmt.Sprintf("no Proxy has its UID; it was made for %s/%s", i.namespace, i.proxyName),
	}
}

// Reclaim removes those of chosen that are the owner's still, and not retained, and says what became of each.
func (w *World) Reclaim(ctx context.Context, o Owner, host string, chosen []provider.Leftover, dryRun bool) ([]provider.Reclaimed, error) {
	if err := w.enter(ctx, call{owner: o, host: host}); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	results := make([]provider.Reclaimed, 0, len(chosen))
	for _, l := range chosen {
		r := provider.Reclaimed{Leftover: l}
		i := w.instances[key{host, l.Object}]
		r.Kept, r.Moot = i.keep(o, l)
		if r.Removed = r.Kept == ""; r.Removed && !dryRun {
			if err := w.remove(i); err != nil {
				return results, err
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// keep says why an instance, which may be nil, is no leftover that may be removed; empty where it is one. moot: it is none any more.
func (i *instance) keep(o Owner, l provider.Leftover) (why string, moot bool) {
	if i == nil {
		return "it is gone", true
	}
	now := i.leftover(o)
	switch {
	case now.Kind != provider.LeftoverInstance:
		return "it is not ours", true
	case now.Kind != l.Kind || now.UID != provider.CompactUID(l.UID):
		return fmt.Sprintf("it is no %s any more", l.Kind), true
	case now.Retained:
		return "its mark says that it is retained", false
	}
	return "", false
}

// Leftovers are what a host holds of the entry: complete, or an error.
func (p *Provider) Leftovers(ctx context.Context, host string) (all []provider.Leftover, err error) {
	err = p.call(ctx, provider.InstanceRef{Host: host}, func(ctx context.Context) error {
		all, err = p.api.Leftovers(ctx, p.owner, host)
		return err
	})
	return all, err
}

// Reclaim removes those of chosen that are leftovers still.
func (p *Provider) Reclaim(ctx context.Context, host string, chosen []provider.Leftover, dryRun bool) (results []provider.Reclaimed, err error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	err = p.call(ctx, provider.InstanceRef{Host: host}, func(ctx context.Context) error {
		results, err = p.api.Reclaim(ctx, p.owner, host, chosen, dryRun)
		return err
	})
	return results, err
}
