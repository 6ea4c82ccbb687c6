// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
	// maxSeed bounds a seed in bytes.
	maxSeed = mib
	// firstBoot is what a guest may write into its overlay while it boots for the first time. What it writes later is what the
	// entry's reserve is for.
	firstBoot = 256 * mib
)

// reservations are the bytes of one pool that work in flight will still take.
type reservations struct {
	mu    sync.Mutex
	taken int64
}

// shortage is what a pool lacks; nil when there is room.
type shortage struct{ need, free, reserve, inFlight int64 }

func (s *shortage) message(pool string) string {
	return fmt.Sprintf("pool %s has %s free, of which %s are kept in reserve and %s are promised to work in flight; %s are needed",
		pool, size(s.free), size(s.reserve), size(s.inFlight), size(s.need))
}

// roomFor says whether need bytes fit; no argument can make it wrap.
func roomFor(need, available, reserve, inFlight int64) *shortage {
	available, reserve, inFlight = max(available, 0), max(reserve, 0), max(inFlight, 0)
	left := available - min(available, reserve)
	left -= min(left, inFlight)
	if need <= left {
		return nil
	}
	return &shortage{need, available, reserve, inFlight}
}

// take promises need bytes, or says what is lacking. release gives them back, once.
func (r *reservations) take(need, available, reserve int64) (release func(), lacking *shortage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := roomFor(need, available, reserve, r.taken); s != nil {
		return nil, s
	}
	r.taken += need
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken -= need
	}), nil
}

// reserveRoom looks at the pool anew and takes need bytes of it.
func (p *Provider) reserveRoom(ctx context.Context, h *host, backend Backend, need int64) (pool PoolInfo, release func(), err error) {
	pool, err = h.refreshPool(ctx, backend)
	if err != nil {
		return pool, nil, translate(h.name, "pool "+h.cfg.Pool, "looking for room", err)
	}
	release, lacking := h.room.take(need, pool.Available, p.reserveBytes())
	if lacking != nil {
		return pool, nil, &provider.Error{
			Kind: provider.Capacity, Host: h.name, Object: "pool " + h.cfg.Pool, Message: lacking.message(h.cfg.Pool),
			Next: "make room in the pool, or use another host",
		}
	}
	return pool, release, nil
}

// poolTurns lets volumes be made side by side, and a pool be rescanned alone: the daemon refuses that while it makes a volume there.
type poolTurns struct{ all *semaphore.Weighted }

// manyVolumes is more than are ever made at one time.
const manyVolumes = 1 << 20

func newPoolTurns() poolTurns { return poolTurns{semaphore.NewWeighted(manyVolumes)} }

func (t poolTurns) take(ctx context.Context, n int64, do func() error) error {
	if err := t.all.Acquire(ctx, n); err != nil {
		return fmt.Errorf("waiting for other calls for this pool: %w", err)
	}
	defer t.all.Release(n)
	return do()
}

// createVolume makes a volume, while nobody here rescans the pool.
func (h *host) createVolume(ctx context.Context, backend Backend, xml string) error {
	return h.turns.take(ctx, 1, func() error { return backend.CreateVolume(ctx, xml) })
}

// refreshPool rescans the pool, while nobody here makes a volume there.
func (h *host) refreshPool(ctx context.Context, backend Backend) (pool PoolInfo, err error) {
	err = h.turns.take(ctx, manyVolumes, func() error {
		pool, err = h.rescan(ctx, backend)
		return err
	})
	return pool, err
}

// rescan asks again where the daemon makes a volume for somebody else, which is soon over. A refresh that fails otherwise leaves the
// pool inactive, and as that was our doing, it is started again.
func (h *host) rescan(ctx context.Context, backend Backend) (PoolInfo, error) {
	pool, err := backend.Pool(ctx, true)
	for tries := 1; isBusy(err) && tries < busyTries; tries++ {
		if err := pause(ctx, busyPause); err != nil {
			return PoolInfo{}, err
		}
		pool, err = backend.Pool(ctx, true)
	}
	var answer *DaemonError
	if err == nil || !asDaemonError(err, &answer) {
		return pool, err
	}
	if now, lookErr := backend.Pool(ctx, false); lookErr != nil || now.Active {
		return PoolInfo{}, err
	}
	if startErr := backend.StartPool(ctx); startErr != nil {
		return PoolInfo{}, startErr
	}
	return backend.Pool(ctx, false)
}

const (
	busyTries = 20
	busyPause = 100 * time.Millisecond
)

func isBusy(err error) bool {
	var answer *DaemonError
	return asDaemonError(err, &answer) && answer.Code == CodeInternal && strings.Contains(answer.Message, "asynchronous jobs")
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// size is a number of bytes as people read it.
func size(n int64) string {
	switch {
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/float64(gib))
	case n >= mib:
		return fmt.Sprintf("%.1f MiB", float64(n)/float64(mib))
	}
	return fmt.Sprintf("%d bytes", n)
}

// bytesOf is gibs GiB in bytes, at most what an int64 holds.
func bytesOf(gibs int64) int64 {
	if gibs > math.MaxInt64/gib {
		return math.MaxInt64
	}
	return max(gibs, 0) * gib
}
