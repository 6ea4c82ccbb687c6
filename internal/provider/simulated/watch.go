// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"maps"
	"slices"
)

// watcher is somebody who wants to be told. What it was not told yet is gathered, so that a slow one holds nobody up.
type watcher struct {
	owner Owner
	uids  map[string]bool
	wake  chan struct{}
}

// tell has an owner's watchers told of a change of the Proxy with that UID, or of its hosts alone where it is empty.
func (w *World) tell(o Owner, uid string) {
	for watcher := range w.watchers {
		if watcher.owner != o {
			continue
		}
		if uid != "" {
			watcher.uids[uid] = true
		}
		select {
		case watcher.wake <- struct{}{}:
		default: // is awake already
		}
	}
}

// Watch calls notify once at the beginning and with each change, until ctx ends or the World does.
func (w *World) Watch(ctx context.Context, o Owner, notify func(Event)) error {
	self := &watcher{owner: o, uids: map[string]bool{}, wake: make(chan struct{}, 1)}
	w.mu.Lock()
	if _, attached := w.owners[o]; !attached {
		w.mu.Unlock()
		return w.enter(ctx, call{owner: o})
	}
	w.watchers[self] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, self)
	}()
	for {
		w.mu.Lock()
		event := Event{UIDs: slices.Sorted(maps.Keys(self.uids)), Hosts: w.hostStates(o)}
		clear(self.uids)
		w.mu.Unlock()
		notify(event)
		select {
		case <-self.wake:
		case <-ctx.Done():
			return ended(ctx, "")
		case <-w.ctx.Done():
			return ended(ctx, "")
		}
	}
}
