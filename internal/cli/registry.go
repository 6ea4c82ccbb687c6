// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// registry holds the set of providers in force. Its providers live from Start until its context ends: an operator that does not lead has
// none.
type registry struct {
	file *config.File
	make func() (map[string]provider.Provider, error)
	wake func(entry, uid string)
	log  *slog.Logger

	set   atomic.Pointer[proxy.Set]
	ready chan struct{}
}

func newRegistry(file *config.File, construct func() (map[string]provider.Provider, error), wake func(entry, uid string), log *slog.Logger) *registry {
	return &registry{file: file, make: construct, wake: wake, log: log, ready: make(chan struct{})}
}

// Current is the set in force; it waits for the first.
func (r *registry) Current() proxy.Set {
	<-r.ready
	if set := r.set.Load(); set != nil {
		return *set
	}
	return proxy.Set{File: r.file}
}

// Start makes the providers, passes on what they tell, and closes them when ctx ends. It returns when nothing of them is left.
func (r *registry) Start(ctx context.Context) error {
	made, err := r.make()
	if err == nil {
		r.set.Store(&proxy.Set{File: r.file, Providers: made})
	}
	close(r.ready)
	if err != nil {
		return err
	}
	var watchers sync.WaitGroup
	for entry, p := range made {
		watcher, ok := p.(provider.Watcher)
		if !ok {
			continue
		}
		watchers.Go(func() {
			err := watcher.Watch(ctx, func(uid string) { r.wake(entry, uid) })
			if err != nil && ctx.Err() == nil {
				r.log.Error("a provider tells nothing any more; its Proxies are polled", "entry", entry, "error", err)
			}
		})
	}
	<-ctx.Done()
	closeProviders(made)
	watchers.Wait()
	return nil
}
