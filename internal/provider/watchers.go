// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Watchers are who wants to be told of changes: what a Watcher needs. The zero value has none.
type Watchers struct {
	mu   sync.Mutex
	next int
	all  map[int]func(uid string)
}

// Watch has notify called by Tell until one of the contexts ends: the caller's or the provider's own.
func (w *Watchers) Watch(ctx, own context.Context, notify func(uid string)) error {
	defer w.add(notify)()
	select {
	case <-ctx.Done():
	case <-own.Done():
	}
	return ctx.Err()
}

func (w *Watchers) add(notify func(uid string)) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[int]func(string){}
	}
	id := w.next
	w.next++
	w.all[id] = notify
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, id)
	}
}

// Len is how many there are.
func (w *Watchers) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// Tell tells every watcher that something about a Proxy's instance changed; an empty UID: anything may have.
func (w *Watchers) Tell(uid string) {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.all))
	w.mu.Unlock()
	for _, notify := range all {
		notify(uid)
	}
}
