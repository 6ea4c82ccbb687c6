// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// file is what is needed of one.
type file interface {
	io.ReadCloser
	Stat() (fs.FileInfo, error)
}

func openRegular(path string) (file, error) {
	// Not blocking, for opening a pipe would.
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// openFile opens the file in a goroutine of its own, as all that it does with it: a file system that hangs holds up that goroutine alone.
func (b *body) openFile() error {
	open := b.opener.openPath
	if open == nil {
		open = openRegular
	}
	if b.opener.hangs.still(b.url.Path) {
		return transient(errStalled, "image source %s: its file system hangs still, since an earlier attempt", b.source)
	}
	ctx, end := context.WithCancelCause(b.ctx)
	p := newPump(ctx, func() (file, error) { return open(b.url.Path) })
	b.hung = func() { b.opener.hangs.note(b.url.Path, p.ended) }
	timer := time.AfterFunc(b.stall, func() { end(errStalled) })
	defer timer.Stop()
	b.end, b.cause = end, func() error { return context.Cause(ctx) }
	select {
	case opened := <-p.opened:
		if opened.err != nil {
			end(nil)
			return fileError(b.source, opened.err)
		}
		b.length, b.content = opened.length, p
		return nil
	case <-ctx.Done():
		return b.explain(context.Cause(ctx))
	}
}

// hangs are files whose file system let go of no read: another attempt would only be stuck beside the first. The nil value knows of none.
type hangs struct {
	mu    sync.Mutex
	paths map[string][]<-chan struct{}
}

// note that a read of path is stuck until ended is closed.
func (h *hangs) note(path string, ended <-chan struct{}) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths[path] = append(h.paths[path], ended)
}

// still says whether a read of path is stuck.
func (h *hangs) still(path string) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths[path] = slices.DeleteFunc(h.paths[path], func(ended <-chan struct{}) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if len(h.paths[path]) > 0 {
		return true
	}
	delete(h.paths, path)
	return false
}

func fileError(source Source, err error) error {
	var ours *Error
	switch {
	case errors.As(err, &ours):
		return permanent(ours.Next, "image source %s: %s", source, ours.Message)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return permanent("put it where the operator can read it", "image source %s: %v", source, errors.Unwrap(err))
	}
	return transient(err, "image source %s: %v", source, err)
}
