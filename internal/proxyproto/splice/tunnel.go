// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrIdle ends a tunnel over which no byte went for its idle timeout.
var ErrIdle = errors.New("tunnel was idle for too long")

// DefaultMaxIdlePipes is how many empty pipes a Tunneler keeps for reuse. A
// pipe is two descriptors; more pipes than this exist only while more
// directions than this move data at the same moment.
const DefaultMaxIdlePipes = 64

// Unwrapper is a connection around another one, from which some bytes may
// have been read already. A tunnel moves its data over the inner connection,
// after the prefix; it closes the outer one.
type Unwrapper interface {
	// Unwrap returns the inner connection and the bytes that were read from
	// it and not yet given to anybody.
	Unwrap() (inner net.Conn, prefix []byte)
}

// Tunneler runs tunnels that share pipes and buffers. The zero value works;
// it must not be copied after first use.
type Tunneler struct {
	// IdleTimeout ends a tunnel when no byte went either way for that long;
	// 0 means never.
	IdleTimeout time.Duration
	// MaxIdlePipes bounds the pipes kept for reuse; 0 is
	// DefaultMaxIdlePipes, negative keeps none.
	MaxIdlePipes int

	pipes   pipePool
	buffers sync.Pool
	active  atomic.Int64
}

// Counts are the bytes that reached the other end.
type Counts struct {
	// Up went from client to upstream, Down from upstream to client.
	Up, Down int64
}

// Active is the number of tunnels that run now.
func (t *Tunneler) Active() int { return int(t.active.Load()) }

// Close closes the pooled pipes. Tunnels that still run go on, and make
// their own.
func (t *Tunneler) Close() { t.pipes.close() }

// Tunnel copies both ways until both have ended, and closes both connections.
// An end of stream on one side is passed on as a half-close to the other,
// while the other direction goes on. A failure of either direction, an idle
// timeout (ErrIdle) or the end of ctx (its cause) ends both, with a TCP reset,
// so that neither end takes a torn stream for a whole one. fromClient, bytes
// that were read from client already, goes up first.
func (t *Tunneler) Tunnel(ctx context.Context, client, upstream net.Conn, fromClient []byte) (Counts, error) {
	t.active.Add(1)
	defer t.active.Add(-1)
	session := newSession(client, upstream)
	defer session.closeBoth()

	stopCtx := context.AfterFunc(ctx, func() { session.abort(context.Cause(ctx)) })
	defer stopCtx()
	stopIdle := session.watchIdle(t.IdleTimeout)
	defer stopIdle()

	clientInner, clientPrefix := unwrapAll(client)
	upstreamInner, upstreamPrefix := unwrapAll(upstream)
	var counts Counts
	var down sync.WaitGroup
	down.Go(func() {
		counts.Down = t.direction(session, clientInner, upstreamInner, upstreamPrefix)
	})
	prefix := slices.Concat(fromClient, clientPrefix)
	counts.Up = t.direction(session, upstreamInner, clientInner, prefix)
	down.Wait()
	return counts, session.err()
}

// direction moves everything from src to dst, then half-closes dst.
func (t *Tunneler) direction(s *session, dst, src net.Conn, prefix []byte) int64 {
	moved, err := writePrefix(s, dst, prefix)
	if err == nil {
		var n int64
		n, err = t.copy(s, dst, src)
		moved += n
	}
	if err != nil {
		s.abort(err)
		return moved
	}
	closeWrite(dst)
	return moved
}

func writePrefix(s *session, dst net.Conn, prefix []byte) (int64, error) {
	if len(prefix) == 0 {
		return 0, nil
	}
	n, err := dst.Write(prefix)
	s.touch()
	return int64(n), err
}

// copyBuffered is the copy for what cannot be spliced.
func (t *Tunneler) copyBuffered(s *session, dst, src net.Conn) (int64, error) {
	buffer, _ := t.buffers.Get().(*[bufferSize]byte)
	if buffer == nil {
		buffer = new([bufferSize]byte)
	}
	defer t.buffers.Put(buffer)
	var moved int64
	for {
		n, readErr := src.Read(buffer[:])
		if n > 0 {
			s.touch()
			written, err := dst.Write(buffer[:n])
			moved += int64(written)
			if err != nil {
				return moved, err
			}
			s.touch()
		}
		if errors.Is(readErr, io.EOF) {
			return moved, nil
		}
		if readErr != nil {
			return moved, readErr
		}
	}
}

const bufferSize = 32 << 10

// unwrapAll follows Unwrapper down to the connection that has the bytes.
func unwrapAll(conn net.Conn) (net.Conn, []byte) {
	var prefix []byte
	for {
		wrapper, ok := conn.(Unwrapper)
		if !ok {
			return conn, prefix
		}
		inner, innerPrefix := wrapper.Unwrap()
		// What an outer layer took is older than what an inner one still has.
		prefix = append(prefix, innerPrefix...)
		conn = inner
	}
}

// closeWrite passes the end of a stream on. A connection without half-close
// can only be closed.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		// A peer that is gone already shows in the other direction.
		_ = half.CloseWrite()
		return
	}
	_ = conn.Close()
}
