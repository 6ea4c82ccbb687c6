// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// fetches is the background work of a Provider, and who waits for it.
type fetches struct{ manager *image.Manager }

func newFetches(depot *image.Depot, notify func(uid string)) *fetches {
	return &fetches{image.NewManager(image.Options{Depot: depot, OnChange: func(_ image.Key, wanted []string) {
		for _, uid := range wanted {
			notify(uid)
		}
	}})}
}

// leave takes a UID out of all that it waits for but these. What nobody waits for any more is ended after a while.
func (f *fetches) leave(uid string, but ...image.Key) { f.manager.Leave(uid, but...) }

// findSupplies finds base and agent. It waits for one at a time; what it waited for stays wanted while its host cannot be asked.
func (c *creation) findSupplies(ctx context.Context) error {
	if err := c.findBase(ctx); err != nil {
		return err
	}
	if err := c.findAgent(ctx); err != nil {
		return err
	}
	c.fetches.leave(c.uid)
	return nil
}

// supply is what is published of a source, with its path on the host.
type supply struct {
	Published
	path string
}

// listedVolumes are the pool's volumes as this call saw them first.
func (c *creation) listedVolumes(ctx context.Context) (volumes []string, err error) {
	if c.volumes == nil {
		c.volumes, err = c.listVolumes(ctx)
	}
	return c.volumes, err
}

// supplied finds what is published of a source, or has it published in the background: InProgress until it is.
func (c *creation) supplied(ctx context.Context, s Source, object string, work image.Job) (supply, error) {
	key := image.Key{Host: c.name, Image: s.stem}
	volumes, err := c.listedVolumes(ctx)
	if err != nil {
		return supply{}, err
	}
	found, ok, err := c.findSupply(ctx, s, volumes)
	if ok || err != nil {
		return found, err
	}
	c.fetches.leave(c.uid, key)
	status := c.fetches.manager.Ensure(key, c.uid, work)
	if status.State == image.Done || status.State == image.Failed {
		// It ended after we looked, perhaps; a publication whose answer was lost counts as failed, too.
		volumes, err := c.listVolumes(ctx)
		if err != nil {
			return supply{}, err
		}
		if found, ok, err := c.findSupply(ctx, s, volumes); ok || err != nil {
			return found, err
		}
	}
	if status.State == image.Done { // its result has been lost since
		c.fetches.manager.Forget(key)
		status = c.fetches.manager.Ensure(key, c.uid, work)
	}
	if status.State == image.Failed {
		return supply{}, translate(c.name, object, "fetching it", status.Err)
	}
	return supply{}, &provider.Error{
		Kind: provider.InProgress, Host: c.name, Object: object, Progress: status.Percent(), Message: progressMessage(c.cfg.Pool, status),
	}
}

// progressMessage says how far a job is.
func progressMessage(pool string, s image.Status) string {
	if s.State == image.Queued {
		return fmt.Sprintf("waits for its turn to be put into pool %s", pool)
	}
	message := fmt.Sprintf("is being put into pool %s: %d%%", pool, s.Percent())
	if s.Step == image.StepDownloading {
		message = fmt.Sprintf("is being downloaded and unpacked, and then put into pool %s: %d%%", pool, s.Percent())
	}
	if s.Total > 0 {
		message += fmt.Sprintf(" (%s of %s)", size(s.Done), size(s.Total))
	}
	if s.Rate > 0 {
		message += fmt.Sprintf(", %s/s", size(s.Rate))
	}
	if s.Remaining > 0 {
		message += fmt.Sprintf(", about %s left", s.Remaining)
	}
	return message
}
