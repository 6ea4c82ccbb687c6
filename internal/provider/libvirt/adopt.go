// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// adopt looks for the instance and makes it run where it is whole. done is false where it has to be made, in full.
func (c *creation) adopt(ctx context.Context) (i provider.Instance, done bool, err error) {
	f, err := c.look(ctx, c.target)
	if errors.Is(err, errAbsent) {
		return i, false, nil
	}
	if err != nil {
		return i, false, err
	}
	state, why := StateOf(f.State, f.Reason)
	switch remedyFor(f.State, f.Reason) {
	case remedyNone:
		return c.made(f), true, nil
	case remedyReplace:
		return i, false, c.discard(ctx, f)
	case remedyResume:
		if err := c.resume(ctx, f); err != nil {
			return i, false, err
		}
	case remedyStart:
		rebuild, err := c.startWhole(ctx, f)
		if err != nil || rebuild {
			return i, false, err
		}
	case remedyWait:
		return i, false, &provider.Error{
			Kind: provider.Transient, Reason: string(state), Host: c.name, Object: c.object(), Message: "the guest is not running: " + why,
		}
	}
	if f, err = c.look(ctx, c.target); errors.Is(err, errAbsent) {
		return i, false, absent(c.target)
	} else if err != nil {
		return i, false, err
	}
	return c.made(f), true, nil
}

// resume lets a paused guest run on. One that ran out of room would pause again at once, so there has to be some; one that paused again soon all the same
// has to wait longer each time.
func (c *creation) resume(ctx context.Context, f found) error {
	now := time.Now()
	if at, resumes := c.memory.mayResume(c.uid, now); now.Before(at) {
		state, why := StateOf(f.State, f.Reason)
		return &provider.Error{
			Kind: provider.Transient, Reason: string(state), Host: c.name, Object: c.object(),
			Message: fmt.Sprintf("the guest is not running: %s; it was let run on %d times lately, and is not before %s", why, resumes, at.UTC().Format(time.TimeOnly)),
			Next:    "look at the host's disk and its log",
		}
	}
	if f.State == domainPaused && f.Reason == pausedIOError {
		_, release, err := c.reserveRoom(ctx, c.host, c.backend, firstBoot)
		if err != nil {
			return err
		}
		c.release = release
	}
	c.memory.noteResume(c.uid, now)
	if err := c.backend.Resume(ctx, c.domain); err != nil {
		return translate(c.name, c.object(), "resuming the guest", err)
	}
	return nil
}

// startWhole starts a domain that has all its volumes. Where one is gone it removes the rest: a domain without its disk is no instance.
func (c *creation) startWhole(ctx context.Context, f found) (rebuild bool, err error) {
	missing, err := c.anyMissing(ctx, f)
	if err != nil {
		return false, err
	}
	if missing {
		return true, c.discard(ctx, f)
	}
	err = c.start(ctx)
	var answer *DaemonError
	if !asDaemonError(err, &answer) || answer.Code != CodeSystemError {
		return false, err
	}
	// The daemon's list of volumes may be old: a file that is gone shows only after a refresh.
	if _, refreshErr := c.refreshPool(ctx, c.backend); refreshErr != nil {
		return false, err
	}
	if missing, lookErr := c.anyMissing(ctx, f); lookErr != nil || !missing {
		return false, err
	}
	return true, c.discard(ctx, f)
}

func (c *creation) anyMissing(ctx context.Context, f found) (bool, error) {
	volumes, err := c.listVolumes(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(f.Mark.Volumes, func(v string) bool { return !slices.Contains(volumes, v) }), nil
}

// discard removes the instance, so that it is made anew.
func (c *creation) discard(ctx context.Context, f found) error {
	volumes, err := c.ownVolumes(ctx, c.target)
	if err != nil {
		return err
	}
	if err := c.removeDomain(ctx, c.target, f); err != nil {
		return err
	}
	return c.removeVolumes(ctx, c.target, volumes)
}
