// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxConsoles is how many consoles are read at once, on all hosts of an entry; more of them wait.
	maxConsoles = 64
	// maxTails is how many consoles are remembered that are read no more.
	maxTails = 128
	// consoleAgain is when a console is tried again that could not be read, or whose guest went off.
	consoleAgain = 5 * time.Second
)

// consoles are read over a connection of their own to each host, so that a guest that talks without end delays nobody's calls. There is one only while
// something is read.
type consoles struct {
	ctx context.Context // ends with the provider
	// owns says whether the domain of a target is ours: somebody else's console is nobody's to read.
	owns    func(context.Context, target) error
	places  chan struct{}
	readers sync.WaitGroup

	mu     sync.Mutex
	closed bool
	guests map[string]*heardGuest // by UID
	posts  map[*host]*post
}

// heardGuest is a guest whose console is read, or was.
type heardGuest struct {
	tail tail
	// holders are who wants it to be read; it is, while there are any.
	holders int
	held    bool // by HoldConsole
	stop    context.CancelFunc
	ended   chan struct{} // closed when the last reader has ended: a console has one at a time
	again   chan struct{} // wakes who waits for another try
	left    time.Time     // when the last holder left
}

// post is the connection to one host.
type post struct {
	backend Backend
	users   int
}

func newConsoles(ctx context.Context, owns func(context.Context, target) error) *consoles {
	return &consoles{ctx: ctx, owns: owns, places: make(chan struct{}, maxConsoles), guests: map[string]*heardGuest{}, posts: map[*host]*post{}}
}

// hold has a console read until release, however often it is called.
func (c *consoles) hold(t target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.guests[t.uid]; g == nil || !g.held {
		if g = c.join(t); g != nil {
			g.held = true
		}
	}
}

func (c *consoles) release(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.guests[uid]; g != nil && g.held {
		g.held = false
		c.leave(g)
	}
}

// join adds a holder; nil when the provider has ended. The caller holds the lock.
func (c *consoles) join(t target) *heardGuest {
	if c.closed {
		return nil
	}
	g := c.guests[t.uid]
	if g == nil {
		g = &heardGuest{again: make(chan struct{}, 1)}
		c.guests[t.uid] = g
	}
	if g.holders++; g.holders == 1 {
		ctx, cancel := context.WithCancel(c.ctx)
		before, ended := g.ended, make(chan struct{})
		g.stop, g.ended = cancel, ended
		c.readers.Go(func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			c.follow(ctx, t, g)
		})
	}
	return g
}

// leave takes a holder away. The caller holds the lock.
func (c *consoles) leave(g *heardGuest) {
	if g.holders--; g.holders > 0 {
		return
	}
	g.stop()
	g.left = time.Now()
	c.prune()
}

// prune forgets the consoles that were left first, where too many are remembered.
func (c *consoles) prune() {
	var idle []string
	for _, uid := range slices.Sorted(maps.Keys(c.guests)) {
		if c.guests[uid].holders == 0 {
			idle = append(idle, uid)
		}
	}
	slices.SortStableFunc(idle, func(a, b string) int { return cmp.Compare(c.guests[a].left.UnixNano(), c.guests[b].left.UnixNano()) })
	for _, uid := range idle[:max(len(idle)-maxTails, 0)] {
		delete(c.guests, uid)
	}
}

// drop forgets a guest that is being removed.
func (c *consoles) drop(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.guests[uid]
	if g == nil {
		return
	}
	if g.held {
		g.held = false
		c.leave(g)
	}
	if g.holders == 0 {
		delete(c.guests, uid)
	}
}

// stir has a console tried again at once: something happened to its guest.
func (c *consoles) stir(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.guests[uid]; g != nil {
		select {
		case g.again <- struct{}{}:
		default:
		}
	}
}

// follow reads a console until ctx ends, through restarts of its guest and of the link.
func (c *consoles) follow(ctx context.Context, t target, g *heardGuest) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return
	}
	defer c.attend(t.host)()
	for {
		c.listen(ctx, t, g)
		timer := time.NewTimer(consoleAgain)
		select {
		case <-timer.C:
		case <-g.again:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// listen reads a console until it ends. Why it ended is of no use to anybody: it is tried again.
func (c *consoles) listen(ctx context.Context, t target, g *heardGuest) {
	if c.owns(ctx, t) != nil {
		return
	}
	backend, err := c.connection(ctx, t.host)
	if err != nil {
		return
	}
	err = backend.Console(ctx, t.domain, g.tail.write)
	var answer *DaemonError
	if err != nil && !errors.As(err, &answer) && ctx.Err() == nil {
		c.abandon(t.host, backend)
	}
}

// attend counts a reader of a host until it departs; the last one closes the connection.
func (c *consoles) attend(h *host) (depart func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.posts[h]
	if p == nil {
		p = &post{}
		c.posts[h] = p
	}
	p.users++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p.users--; p.users > 0 {
			return
		}
		delete(c.posts, h)
		if p.backend != nil {
			p.backend.Close()
		}
	}
}

// connection is the one to a host that has a reader.
func (c *consoles) connection(ctx context.Context, h *host) (Backend, error) {
	c.mu.Lock()
	p := c.posts[h]
	if p.backend != nil {
		defer c.mu.Unlock()
		return p.backend, nil
	}
	c.mu.Unlock()
	backend, err := h.backend.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.backend != nil { // somebody was faster
		backend.Close()
		return p.backend, nil
	}
	p.backend = backend
	return backend, nil
}

// abandon closes a connection that broke.
func (c *consoles) abandon(h *host, broken Backend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.posts[h]; p.backend == broken {
		broken.Close()
		p.backend = nil
	}
}

// close waits for all readers; the provider's context has ended.
func (c *consoles) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.readers.Wait()
}
