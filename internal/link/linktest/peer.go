// SPDX-License-Identifier: Apache-2.0

package linktest

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
)

// LibVersion is what a Peer answers to ConnectGetLibVersion when nothing else is scripted.
const LibVersion = 9_000_000

// Peer plays a libvirt daemon. Its fields are set before it serves.
type Peer struct {
	// OnCall takes a call that it wants to answer itself, or not at all; it returns
	// false for the answer that a daemon would give.
	OnCall func(c *PeerConn, call Frame) bool
	// OnStream takes stream packets, and the holes between them.
	OnStream func(c *PeerConn, packet Frame)

	// Silent makes the peer read on and say nothing more, not even to a ping.
	Silent atomic.Bool
	// Pings counts the keepalives that arrived.
	Pings atomic.Int64
	// Pongs counts the answers to ours.
	Pongs atomic.Int64
	// Conns counts the connections that were opened.
	Conns atomic.Int64
}

// PeerConn is one connection of a Peer.
type PeerConn struct {
	peer *Peer
	conn io.ReadWriteCloser
	mu   sync.Mutex
}

// Send writes frames one after the other.
func (c *PeerConn) Send(frames ...Frame) {
	for _, f := range frames {
		c.SendRaw(f.Encode())
	}
}

// SendRaw writes bytes that need be no frame at all.
func (c *PeerConn) SendRaw(b []byte) {
	if c.peer.Silent.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Write(b) // the reading side finds out
}

// Close ends the connection, as a daemon that is restarted does.
func (c *PeerConn) Close() { c.conn.Close() }

// Serve speaks libvirt on conn until it ends.
func (p *Peer) Serve(conn io.ReadWriteCloser) {
	p.Conns.Add(1)
	c := &PeerConn{peer: p, conn: conn}
	defer conn.Close()
	for {
		f, err := ReadFrame(conn)
		if err != nil {
			return
		}
		p.handle(c, f)
	}
}

func (p *Peer) handle(c *PeerConn, f Frame) {
	switch {
	case f.Program == Keepalive && f.Procedure == Ping:
		p.Pings.Add(1)
		f.Procedure = Pong
		c.Send(f)
	case f.Program == Keepalive:
		p.Pongs.Add(1)
	case f.Type == Stream, f.Type == Hole:
		if p.OnStream != nil {
			p.OnStream(c, f)
		}
	case p.OnCall == nil || !p.OnCall(c, f):
		c.Send(DefaultAnswer(f))
	}
}

// DefaultAnswer is what a daemon without authentication says to the few calls that
// tests of links make.
func DefaultAnswer(call Frame) Frame {
	switch call.Procedure {
	case AuthList: // one entry: none
		return call.Answer(OK, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 1), 0))
	case GetLibVersion:
		return call.Answer(OK, binary.BigEndian.AppendUint64(nil, LibVersion))
	}
	return call.Answer(OK, nil)
}
