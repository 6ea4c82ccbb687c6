// SPDX-License-Identifier: Apache-2.0

// Package registry holds the providers file in force, with the providers made from it, and changes both when the file changes: a provider whose entry
// did not change goes on undisturbed, and a file that cannot be used leaves everything as it is.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Options of a Registry. Report may be nil where Load is.
type Options struct {
	// File is the first in force.
	File *config.File
	// Load reads the file anew; nil where it never changes.
	Load func() (*config.File, error)
	// Changed says that the file may have changed; what changes silently is found within checkEvery. nil for nobody who says so.
	Changed <-chan struct{}
	// Prepare is told of a file before providers are made from it; nil for nobody.
	Prepare func(*config.File)
	// Make makes the provider of an entry of a file.
	Make func(*config.File, config.Entry) (provider.Provider, error)
	// Wake has a Proxy of an entry looked at, or all of them where uid is empty.
	Wake   func(entry, uid string)
	Report Reporter
	Log    *slog.Logger
}

// Reporter is told of files.
type Reporter interface {
	// InForce: a changed file is in force; entries are those whose provider was made anew, made or ended.
	InForce(file *config.File, entries []string)
	// Refused: the file that is there cannot be used, and that before it, file, stays in force.
	Refused(file *config.File, err error)
}

// Registry is the set of providers in force. Its providers live from Start until its context ends: an operator that does not lead has none.
type Registry struct {
	Options
	ready chan struct{}

	// swap is held while providers change: nobody gets a set meanwhile.
	swap sync.RWMutex
	set  atomic.Pointer[proxy.Set]
	runs map[string]*run
}

// run is one provider, and who listens to it.
type run struct {
	entry    config.Entry
	provider provider.Provider
	cancel   context.CancelFunc
	watcher  sync.WaitGroup
}

// New makes nothing yet.
func New(o Options) *Registry {
	if o.Prepare == nil {
		o.Prepare = func(*config.File) {}
	}
	return &Registry{Options: o, ready: make(chan struct{}), runs: map[string]*run{}}
}

// Current is the set in force; it waits for the first, and while providers change.
func (r *Registry) Current() proxy.Set {
	<-r.ready
	r.swap.RLock()
	defer r.swap.RUnlock()
	if set := r.set.Load(); set != nil {
		return *set
	}
	return proxy.Set{File: r.File}
}

// Start makes the providers, passes on what they tell, follows the file, and closes them when ctx ends. It returns when nothing of them is left.
func (r *Registry) Start(ctx context.Context) error {
	defer r.closeAll()
	err := r.replace(ctx, r.File)
	close(r.ready)
	if err != nil {
		return err
	}
	r.follow(ctx)
	return nil
}

// replace closes the providers that a file has no more, or has otherwise, and makes those that are missing. Where one cannot be made, the file before is in
// force again.
func (r *Registry) replace(ctx context.Context, file *config.File) error {
	r.swap.Lock()
	defer r.swap.Unlock()
	before := r.set.Load()
	err := r.become(ctx, file)
	if err != nil && before != nil {
		return errors.Join(err, r.become(ctx, before.File))
	}
	return err
}

func (r *Registry) become(ctx context.Context, file *config.File) error {
	shared := r.set.Load() == nil || sharedParts(r.set.Load().File, file)
	for name, old := range r.runs {
		if entry, ok := file.Entry(name); !ok || !shared || !reflect.DeepEqual(*entry, old.entry) {
			old.close()
			delete(r.runs, name)
		}
	}
	r.Prepare(file)
	var failed error
	for _, entry := range file.Entries {
		if r.runs[entry.Name] != nil {
			continue
		}
		made, err := r.Make(file, entry)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("entry %s: %w", entry.Name, err))
			continue
		}
		r.runs[entry.Name] = r.start(ctx, entry, made)
	}
	set := &proxy.Set{File: file, Providers: make(map[string]provider.Provider, len(r.runs))}
	for name, run := range r.runs {
		set.Providers[name] = run.provider
	}
	if failed == nil || r.set.Load() != nil {
		r.set.Store(set)
	}
	return failed
}

// sharedParts says whether what all providers of a file are made with is the same.
func sharedParts(a, b *config.File) bool { return reflect.DeepEqual(a.Reflectors, b.Reflectors) }

// start listens to a provider.
func (r *Registry) start(ctx context.Context, entry config.Entry, made provider.Provider) *run {
	ctx, cancel := context.WithCancel(ctx)
	started := &run{entry: entry, provider: made, cancel: cancel}
	watcher, ok := made.(provider.Watcher)
	if !ok {
		return started
	}
	started.watcher.Go(func() {
		err := watcher.Watch(ctx, func(uid string) { r.Wake(entry.Name, uid) })
		if err != nil && ctx.Err() == nil {
			r.Log.Error("a provider tells nothing any more; its Proxies are polled", "entry", entry.Name, "error", err)
		}
	})
	return started
}

func (u *run) close() {
	u.cancel()
	if closer, ok := u.provider.(provider.Closer); ok {
		closer.Close()
	}
	u.watcher.Wait()
}

func (r *Registry) closeAll() {
	for _, run := range r.runs {
		run.close()
	}
}

// changedEntries are the entries of either file whose provider is another one.
func changedEntries(before, after proxy.Set) []string {
	names := map[string]bool{}
	for name, p := range before.Providers {
		if after.Providers[name] != p {
			names[name] = true
		}
	}
	for name := range after.Providers {
		if before.Providers[name] == nil {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Now is the set in force, if there is one yet. It does not wait for the first.
func (r *Registry) Now() (proxy.Set, bool) {
	select {
	case <-r.ready:
		return r.Current(), true
	default:
		return proxy.Set{}, false
	}
}
