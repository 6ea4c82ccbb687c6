// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"sync"
)

// keyLock is one lock per key, whose wait ends with its context. The zero value is ready.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*keyHold
}

type keyHold struct {
	token chan struct{}
	users int
}

// lock waits for the key; unlock gives it back.
func (l *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	h := l.join(key)
	select {
	case h.token <- struct{}{}:
		return func() { <-h.token; l.leave(key, h) }, nil
	case <-ctx.Done():
		l.leave(key, h)
		return nil, ctx.Err()
	}
}

func (l *keyLock) join(key string) *keyHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*keyHold{}
	}
	h := l.held[key]
	if h == nil {
		h = &keyHold{token: make(chan struct{}, 1)}
		l.held[key] = h
	}
	h.users++
	return h
}

func (l *keyLock) leave(key string, h *keyHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.held, key)
	}
}
