// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"io"
	"sync"
)

// spooled is how far the copy of an image is, for those who read it.
type spooled struct {
	mu      sync.Mutex
	changed chan struct{} // closed and made anew at each change

	begun              bool // info and size are known
	info               Info
	size               int64
	written            int64
	received, declared int64 // of the file as served
	finished           bool
	result             Result
	// attempt counts the breaks; whoever came before the last of them is told of it.
	attempt int
	broken  error
	failed  error
}

func (p *spooled) init() { p.changed = make(chan struct{}) }

func (p *spooled) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *spooled) begin(info Info, size int64) {
	p.update(func() { p.begun, p.info, p.size = true, info, size })
}

func (p *spooled) advance(written, received, declared int64) {
	p.update(func() { p.written, p.received, p.declared = written, received, declared })
}

func (p *spooled) finish(result Result) { p.update(func() { p.finished, p.result = true, result }) }

func (p *spooled) fail(err error) { p.update(func() { p.failed = err }) }

func (p *spooled) breakOff(err error) { p.update(func() { p.attempt++; p.broken = err }) }

func (p *spooled) isFinished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished
}

func (p *spooled) join() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempt
}

// wait returns when ready holds, which is asked under the lock, or with the reason why it will not.
func (p *spooled) wait(ctx context.Context, attempt int, ready func() bool) error {
	for {
		p.mu.Lock()
		changed, ok, err := p.changed, ready(), p.failed
		if err == nil && attempt < p.attempt {
			err = p.broken
		}
		p.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return transient(context.Cause(ctx), "the fetch was ended: %v", context.Cause(ctx))
		}
	}
}

// lease is one reader of a spooled image, from its start.
type lease struct {
	*spool
	item    *item
	ctx     context.Context
	attempt int
	info    Info
	size    int64
	at      int64
}

func (l *lease) begin(report func(Progress)) error {
	p := &l.item.progress
	last := int64(0)
	for {
		told := last
		begun := false
		err := p.wait(l.ctx, l.attempt, func() bool {
			begun = p.begun
			if begun {
				l.info, l.size = p.info, p.size
			}
			last = p.received
			return begun || p.received > told
		})
		if err != nil || begun {
			return err
		}
		report(Progress{Step: StepDownloading, Done: last, Total: p.declaredLength()})
	}
}

func (p *spooled) declaredLength() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.declared
}

// Read gives what was written so far, and waits for more.
func (l *lease) Read(b []byte) (int, error) {
	if l.at == l.size {
		return 0, io.EOF
	}
	p := &l.item.progress
	var written int64
	err := p.wait(l.ctx, l.attempt, func() bool {
		written = p.written
		return written > l.at
	})
	if err != nil {
		return 0, err
	}
	n, err := l.item.file.ReadAt(b[:min(int64(len(b)), written-l.at)], l.at)
	l.at += int64(n)
	if err != nil {
		return n, l.diskError(err)
	}
	return n, nil
}

// result waits until all was downloaded and found right.
func (l *lease) result() (result Result, err error) {
	p := &l.item.progress
	err = p.wait(l.ctx, l.attempt, func() bool {
		result = p.result
		return p.finished
	})
	return result, err
}

func (l *lease) leave() { l.spool.leave(l.item) }
