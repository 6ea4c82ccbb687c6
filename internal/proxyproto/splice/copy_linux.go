// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// copy moves everything from src to dst by splice where both are TCP.
func (t *Tunneler) copy(s *session, dst, src net.Conn) (int64, error) {
	srcRaw, srcOK := rawTCP(src)
	dstRaw, dstOK := rawTCP(dst)
	if !srcOK || !dstOK {
		return t.copyBuffered(s, dst, src)
	}
	m := &mover{tunneler: t, session: s, src: srcRaw, dst: dstRaw}
	m.fillFunc, m.drainFunc = m.fill, m.drain
	defer m.release()
	moved, err := m.run()
	if errors.Is(err, errNoSplice) {
		n, err := t.copyBuffered(s, dst, src)
		return moved + n, err
	}
	return moved, err
}

func rawTCP(conn net.Conn) (syscall.RawConn, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, false
	}
	raw, err := tcp.SyscallConn()
	return raw, err == nil
}

// mover is one direction of a spliced tunnel. It holds a pipe only between
// the first byte that fill gets and the last one that drain hands on.
type mover struct {
	tunneler *Tunneler
	session  *session
	src, dst syscall.RawConn
	// The method values are made once: a closure each round would be garbage
	// on the hot path.
	fillFunc, drainFunc func(fd uintptr) bool

	pipe    *pipe
	pending int // bytes in pipe
	eof     bool
	err     error
}

func (m *mover) run() (moved int64, err error) {
	for {
		if err := m.src.Read(m.fillFunc); err != nil {
			return moved, err
		}
		if m.err != nil || m.eof {
			return moved, m.err
		}
		m.session.touch()
		got := int64(m.pending)
		err := m.dst.Write(m.drainFunc)
		moved += got - int64(m.pending)
		if err != nil {
			return moved, err
		}
		if m.err != nil {
			return moved, m.err
		}
		m.session.touch()
	}
}

// fill takes what src has into a pipe. It returns false when src has nothing:
// the runtime then waits until src is readable, and calls again.
func (m *mover) fill(fd uintptr) (done bool) {
	if m.pipe == nil {
		if m.pipe, m.err = m.tunneler.takePipe(); m.err != nil {
			// Out of descriptors, most likely: buffers need none.
			m.err = errNoSplice
			return true
		}
	}
	n, err := splice(int(fd), m.pipe.w)
	switch {
	case errors.Is(err, unix.EAGAIN):
		m.release()
		return false
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		m.release()
		m.err = errNoSplice
	case err != nil:
		m.err = os.NewSyscallError("splice", err)
	case n == 0:
		m.eof = true
	default:
		m.pending = n
	}
	return true
}

// drain hands the pipe's bytes on to dst; false when dst takes no more now.
func (m *mover) drain(fd uintptr) (done bool) {
	for m.pending > 0 {
		n, err := splice(m.pipe.r, int(fd))
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil {
			m.err = os.NewSyscallError("splice", err)
			return true
		}
		if n == 0 {
			m.err = io.ErrNoProgress
			return true
		}
		m.pending -= n
	}
	return true
}

// release gives the pipe back when it is empty, and closes it when bytes are
// left in it that no other tunnel may ever see.
func (m *mover) release() {
	if m.pipe == nil {
		return
	}
	if m.pending == 0 {
		m.tunneler.putPipe(m.pipe)
	} else {
		m.pipe.close()
	}
	m.pipe = nil
}

// splice moves up to a pipe full from one descriptor to another.
func splice(from, to int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, maxSplice, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return int(n), err
	}
}
