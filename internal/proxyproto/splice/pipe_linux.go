// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// pipeSize is what one round can move. The kernel may give less.
	pipeSize = 256 << 10
	// maxSplice is above any pipe's size: the pipe is the bound.
	maxSplice = 1 << 20
)

// errNoSplice sends a direction to copyBuffered. No byte is in flight then.
var errNoSplice = errors.New("splice is not possible here")

type pipe struct{ r, w int }

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	// Past the user's share of pipe memory the kernel refuses; the default
	// size then does.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{r: fds[0], w: fds[1]}, nil
}

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// pipePool keeps empty pipes.
type pipePool struct {
	mu     sync.Mutex
	idle   []*pipe
	closed bool
}

func (t *Tunneler) takePipe() (*pipe, error) {
	pool := &t.pipes
	pool.mu.Lock()
	if last := len(pool.idle) - 1; last >= 0 {
		p := pool.idle[last]
		pool.idle = pool.idle[:last]
		pool.mu.Unlock()
		return p, nil
	}
	pool.mu.Unlock()
	return newPipe()
}

func (t *Tunneler) putPipe(p *pipe) {
	limit := t.MaxIdlePipes
	if limit == 0 {
		limit = DefaultMaxIdlePipes
	}
	pool := &t.pipes
	pool.mu.Lock()
	keep := !pool.closed && len(pool.idle) < limit
	if keep {
		pool.idle = append(pool.idle, p)
	}
	pool.mu.Unlock()
	if !keep {
		p.close()
	}
}

func (pool *pipePool) close() {
	pool.mu.Lock()
	idle := pool.idle
	pool.idle, pool.closed = nil, true
	pool.mu.Unlock()
	for _, p := range idle {
		p.close()
	}
}
