// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// pace is how the pauses between dials grow.
type pace struct{ first, max time.Duration }

var (
	outagePace = pace{500 * time.Millisecond, 30 * time.Second}
	// throttlePace is for a host that is up: asking it often is what it minds.
	throttlePace = pace{2 * time.Second, time.Minute}
)

const (
	// authMemory is how long a refused key is not tried again.
	authMemory = 30 * time.Second
	// healthyLife is how long a link must have lived for its death to be no sign of trouble.
	healthyLife = 10 * time.Second
	// patience is how long a Get waits for a dial to a host whose last dial failed, or whose link died: a host that is down holds nobody up.
	patience = time.Second
)

// Keeper keeps one link to one host for all who need it, and dials anew when it dies:
// one dial at a time, dedicated links included, with growing pauses while the host does
// not answer. A host whose sshd throttles is asked at a pace of its own, and keeps the
// link that it has.
type Keeper struct {
	target Target
	dial   func(context.Context, Target) (*Link, error)
	random func() float64

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	workers sync.WaitGroup
	turn    chan struct{} // holds one while a dial is under way

	mu        sync.Mutex
	link      *Link
	born      time.Time     // of link
	dialing   chan struct{} // closed when the dial under way ends; nil when there is none
	failures  int           // dials that failed and links that died young, in a row
	throttled int           // dials that sshd turned away, in a row
	notBefore time.Time     // of the next dial
	lastErr   error         // why notBefore is set
	dialErr   error         // of the last dial, or what its link died of
}

// NewKeeper does not dial; the first Get does.
func NewKeeper(t Target) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	t.memory = &memory{}
	return &Keeper{target: t, dial: Dial, random: rand.Float64, ctx: ctx, cancel: cancel, turn: make(chan struct{}, 1)}
}

// Get returns the living link, dialing it where there is none. While the pause after a
// failure lasts it returns that failure at once, and after a second while the next dial
// is under way, so that a host that is down holds nobody up. It ends with ctx; the dial
// goes on for others.
func (k *Keeper) Get(ctx context.Context) (*Link, error) {
	for {
		l, wait, err := k.look()
		if l != nil || err != nil {
			return l, err
		}
		last := k.lastFailure()
		var tired <-chan time.Time
		if last != nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			tired = timer.C
		}
		select {
		case <-wait:
		case <-tired:
			return nil, fmt.Errorf("%w (dialing again)", last)
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a link to %s: %w", k.target.Address, context.Cause(ctx))
		}
	}
}

// lastFailure is why the last dial failed, or what its link died of; nil before the first dial.
func (k *Keeper) lastFailure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dialErr
}

// look returns the link, or why there is none, or a dial to wait for.
func (k *Keeper) look() (*Link, <-chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link != nil && k.link.Err() == nil {
		return k.link, nil, nil
	}
	if k.link != nil {
		k.bury()
	}
	if k.dialing != nil {
		return nil, k.dialing, nil
	}
	if err := k.refusal(); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	k.dialing = done
	k.workers.Go(func() { k.redial(done) })
	return nil, done, nil
}

func (k *Keeper) redial(done chan struct{}) {
	l, err := k.takeTurn(k.ctx, k.failed)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(done)
	k.dialing, k.dialErr = nil, err
	switch {
	case err != nil:
	case k.ctx.Err() != nil:
		l.Close()
	default:
		k.link, k.born = l, time.Now()
		k.throttled = 0
	}
}

// takeTurn dials when no other dial is under way. A dial that failed is noted, under the lock, before the next takes its turn: the pause
// after it holds for all who wait.
func (k *Keeper) takeTurn(ctx context.Context, note func(error)) (*Link, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to dial %s: %w", k.target.Address, context.Cause(ctx))
	}
	defer func() { <-k.turn }()
	k.mu.Lock()
	err := k.refusal()
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := k.dial(ctx, k.target)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		note(err)
	}
	return l, err
}

// refusal is why no dial may start now.
func (k *Keeper) refusal() error {
	if k.ctx.Err() != nil {
		return ErrClosed
	}
	if pause := time.Until(k.notBefore); pause > 0 {
		return fmt.Errorf("%w (next attempt in %v)", k.lastErr, pause.Round(100*time.Millisecond))
	}
	return nil
}

// bury forgets a dead link. The first that died young is replaced at once: a daemon was
// restarted. From the second on there is a pause.
func (k *Keeper) bury() {
	err := k.link.Err()
	lived := time.Since(k.born)
	k.link, k.dialErr = nil, err
	if lived >= healthyLife {
		k.failures = 0
		return
	}
	if k.failures++; k.failures > 1 {
		k.pause(err, outagePace.backoff(k.failures-1, k.random()))
	}
}

// failed counts a failure of the shared link's dial.
func (k *Keeper) failed(err error) {
	var auth *AuthError
	var throttled *ThrottledError
	switch {
	case errors.As(err, &auth):
		k.pause(err, authMemory)
	case errors.As(err, &throttled):
		k.throttled++
		k.pause(err, throttlePace.backoff(k.throttled, k.random()))
	default:
		k.failures++
		k.pause(err, outagePace.backoff(k.failures, k.random()))
	}
}

func (k *Keeper) pause(err error, d time.Duration) {
	k.lastErr, k.notBefore = err, time.Now().Add(d)
}

// backoff doubles with each failure, from the first on, and is spread over its upper
// half by random, which is in [0, 1).
func (p pace) backoff(failures int, random float64) time.Duration {
	d := p.max
	if shift := failures - 1; shift < 10 {
		d = min(d, p.first<<shift)
	}
	return d/2 + time.Duration(random*float64(d/2))
}

// Dedicated dials a link of its own, for one long transfer. The caller closes it; it
// dies with the Keeper, too. During a pause after a failure it fails like Get.
func (k *Keeper) Dedicated(ctx context.Context) (*Link, error) {
	k.mu.Lock()
	err := k.refusal()
	if err == nil {
		k.workers.Add(1) // under the lock, so that Close waits for it
	}
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer k.workers.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.ctx, cancel)()
	l, err := k.takeTurn(ctx, k.remember)
	if err != nil {
		return nil, err
	}
	k.workers.Go(func() {
		select {
		case <-l.Done():
		case <-k.ctx.Done():
			l.Close()
		}
	})
	return l, nil
}

// remember keeps a refused key, and an sshd that throttles, from being tried again at
// once. Other failures of a dedicated dial say nothing about the shared link.
func (k *Keeper) remember(err error) {
	var auth *AuthError
	var throttled *ThrottledError
	if errors.As(err, &auth) || errors.As(err, &throttled) {
		k.failed(err)
	}
}

// Close ends the link, the dedicated ones and dials under way, and waits for the
// goroutines that belong to them here.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.cancel()
	if k.link != nil {
		k.link.Close()
	}
	k.mu.Unlock()
	k.workers.Wait()
}
