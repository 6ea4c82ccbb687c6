// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// fetches is the background work of a Provider, and who waits for it.
type fetches struct {
	manager *image.Manager
	notify  func(uid string)

	mu      sync.Mutex
	waiting map[image.Key]map[string]bool // UIDs
}

func newFetches(notify func(uid string)) *fetches {
	f := &fetches{notify: notify, waiting: map[image.Key]map[string]bool{}}
	f.manager = image.NewManager(image.Options{OnChange: f.changed})
	return f
}

// ensure sees to it that the work goes on, and has uid told when it moves.
func (f *fetches) ensure(key image.Key, uid string, work image.Job) image.Status {
	f.mu.Lock()
	if f.waiting[key] == nil {
		f.waiting[key] = map[string]bool{}
	}
	f.waiting[key][uid] = true
	f.mu.Unlock()
	return f.manager.Ensure(key, work)
}

// leave takes a UID out of all that it waits for.
func (f *fetches) leave(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, uids := range f.waiting {
		if delete(uids, uid); len(uids) == 0 {
			delete(f.waiting, key)
		}
	}
}

func (f *fetches) changed(key image.Key) {
	f.mu.Lock()
	uids := slices.Sorted(maps.Keys(f.waiting[key]))
	f.mu.Unlock()
	for _, uid := range uids {
		f.notify(uid)
	}
}

// supply is what is published of a source, with its path on the host.
type supply struct {
	Published
	path string
}

// supplied finds what is published of a source, or has it published in the background: InProgress until it is.
func (c *creation) supplied(ctx context.Context, s Source, object string, work image.Job) (supply, error) {
	key := image.Key{Host: c.name, Image: s.stem}
	found, ok, err := c.findSupply(ctx, s)
	if ok || err != nil {
		return found, err
	}
	status := c.fetches.ensure(key, c.uid, work)
	if status.State == image.Done || status.State == image.Failed {
		// It ended after we looked, perhaps; a publication whose answer was lost counts as failed, too.
		if found, ok, err := c.findSupply(ctx, s); ok || err != nil {
			return found, err
		}
	}
	if status.State == image.Done { // its result has been lost since
		c.fetches.manager.Forget(key)
		status = c.fetches.ensure(key, c.uid, work)
	}
	e := &provider.Error{Kind: provider.InProgress, Host: c.name, Object: object, Progress: status.Percent()}
	switch status.State {
	case image.Failed:
		return supply{}, translate(c.name, object, "fetching it", status.Err)
	case image.Queued:
		e.Message = fmt.Sprintf("waits for its turn to be put into pool %s", c.cfg.Pool)
	default:
		e.Message = fmt.Sprintf("is being put into pool %s: %d%%", c.cfg.Pool, e.Progress)
	}
	return supply{}, e
}
