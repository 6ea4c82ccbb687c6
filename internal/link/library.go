// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// libraryConn is the connection as the client library sees it: it carries the
// library's calls, and one answer to each.
type libraryConn struct {
	g *guard

	pending []byte // what of an answer is still to be read; Read has one caller
	answers bool   // the answer to ConnectOpen was read
	partial []byte // the frame that is being written; the library's lock guards it
}

// Read ends with io.EOF when the link is dead, though not between the answer to
// ConnectOpen and the return of the library's ConnectToURI: there the library
// replaces a channel, and an end would race with that and be forgotten.
func (c *libraryConn) Read(p []byte) (int, error) {
	if len(c.pending) == 0 {
		select {
		case c.pending = <-c.g.toLibrary:
		case <-c.g.dead:
			if c.answers {
				<-c.g.opened
			}
			return 0, io.EOF
		}
		h := parseHeader(c.pending)
		c.answers = c.answers || h.program == programRemote && h.procedure == procConnectOpen && h.status == statusOK
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

// Write takes whole calls from the library. It reports no error: a call that is told
// of one while its answer arrives would deadlock the library. A call on a dead
// connection ends when the library reads io.EOF.
func (c *libraryConn) Write(p []byte) (int, error) {
	c.partial = append(c.partial, p...)
	for len(c.partial) >= headerLen {
		h := parseHeader(c.partial)
		if err := checkLength(h.length); err != nil {
			c.g.die(fmt.Errorf("the client library wrote %w", err))
			break
		}
		if len(c.partial) < int(h.length) {
			break
		}
		c.forward(h, c.partial[:h.length:h.length])
		c.partial = append([]byte(nil), c.partial[h.length:]...)
	}
	return len(p), nil
}

func (c *libraryConn) forward(h header, frame []byte) {
	if err := c.admit(h); err != nil {
		c.g.die(err)
		return
	}
	c.g.send(outgoing{frame: frame})
}

func (c *libraryConn) admit(h header) error {
	if h.kind != typeCall {
		return fmt.Errorf("the client library sent a frame of type %d: streams are for Link.Upload and Link.Console", h.kind)
	}
	if name, ok := streamProcedures[h.procedure]; ok && h.program == programRemote {
		return fmt.Errorf("%s is a stream, and not for Do: use Link.Upload or Link.Console", name)
	}
	if _, ok := answerTypes[h.procedure]; !ok || h.program != programRemote {
		return fmt.Errorf("the answers to procedure %d of program %#x cannot be checked: add it to answerTypes", h.procedure, h.program)
	}
	return c.g.expect(h.serial, call{program: h.program, procedure: h.procedure})
}

// Close is the library's way to give up before the link is open.
func (c *libraryConn) Close() error {
	c.g.release()
	c.g.die(errors.New("closed"))
	return nil
}

// The library neither sets deadlines nor asks for addresses; the link's context and
// its keepalive bound every wait.

func (c *libraryConn) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "unix"} }
func (c *libraryConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Net: "unix"} }
func (c *libraryConn) SetDeadline(time.Time) error      { return nil }
func (c *libraryConn) SetReadDeadline(time.Time) error  { return nil }
func (c *libraryConn) SetWriteDeadline(time.Time) error { return nil }
