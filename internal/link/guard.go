// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// guard stands between libvirt's socket and the client library. It owns the reading
// and the writing of frames, so that a frame that cannot be is never allocated, an
// answer that nobody waits for goes nowhere, and silence is noticed.
type guard struct {
	raw io.ReadWriter
	// sever cuts the connection under raw, so that whoever is stuck in it is freed;
	// it does not block.
	sever func()

	outgoing  chan outgoing
	control   chan []byte // keepalive frames: they go before what waits in outgoing
	toLibrary chan []byte

	mu      sync.Mutex
	calls   map[uint32]call
	streams map[uint32]*stream
	boxes   map[*mailbox]struct{} // who wants to be told of events
	serials uint32                // of our own calls, far from the library's
	// pings were sent and not answered, in order: who is told of the answer.
	pings []chan<- struct{}
	count func(procedure string) // is told of each call; may be nil

	unanswered atomic.Int32 // pings since the daemon was last heard

	dead    chan struct{}
	once    sync.Once
	cause   error // valid once dead is closed
	workers sync.WaitGroup

	// opened is closed when the library's ConnectToURI has returned; see libraryConn.Read.
	opened     chan struct{}
	openedOnce sync.Once
}

// outgoing is a whole frame on its way to the daemon.
type outgoing struct {
	frame  []byte          // with a ping behind it, perhaps
	buffer []byte          // that the frame lies in
	sent   chan<- []byte   // gets the buffer back for reuse; nil when nobody wants it
	pong   chan<- struct{} // is told of the answer to the ping, unless it is full; nil where there is none, or nobody wants to know
}

// call is a call that the daemon has not answered yet.
type call struct {
	program, procedure uint32
	own                *stream // nil for the library's calls
}

const firstOwnSerial = 1 << 31

func newGuard(raw io.ReadWriter, sever func(), interval time.Duration, count int) *guard {
	g := &guard{
		raw:       raw,
		sever:     sever,
		outgoing:  make(chan outgoing),
		control:   make(chan []byte, 2),
		toLibrary: make(chan []byte),
		calls:     map[uint32]call{},
		streams:   map[uint32]*stream{},
		boxes:     map[*mailbox]struct{}{},
		serials:   firstOwnSerial,
		dead:      make(chan struct{}),
		opened:    make(chan struct{}),
	}
	g.workers.Go(g.read)
	g.workers.Go(g.write)
	g.workers.Go(func() { g.watch(interval, count) })
	return g
}

// die ends everything on this connection, at once and without blocking.
func (g *guard) die(cause error) {
	g.once.Do(func() {
		g.cause = cause
		g.sever()
		close(g.dead)
	})
}

func (g *guard) release() { g.openedOnce.Do(func() { close(g.opened) }) }

// read takes frames off the connection until it ends.
func (g *guard) read() {
	r := bufio.NewReaderSize(hearing{g}, 64<<10)
	for {
		if err := g.readFrame(r); err != nil {
			g.die(readCause(err))
			return
		}
	}
}

func readCause(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the daemon closed the connection")
	}
	return err
}

func (g *guard) readFrame(r *bufio.Reader) error {
	h, err := readHeader(r)
	if err != nil {
		return err
	}
	to, err := g.route(h)
	if err != nil {
		return err
	}
	if to == nil {
		_, err := io.CopyN(io.Discard, r, int64(h.length-headerLen))
		return err
	}
	frame := make([]byte, h.length)
	h.put(frame)
	if _, err := io.ReadFull(r, frame[headerLen:]); err != nil {
		return err
	}
	return to(frame)
}

// readHeader looks at the length before it waits for the rest: a peer that is not
// libvirt may never send as much.
func readHeader(r *bufio.Reader) (header, error) {
	var b [headerLen]byte
	start, err := r.Peek(4)
	if err != nil {
		return header{}, err
	}
	copy(b[:], start)
	if err := checkLength(parseHeader(b[:]).length); err != nil {
		text, _ := r.Peek(min(r.Buffered(), 40)) // only what is here already
		return header{}, fmt.Errorf("%w; it began with %q", err, text)
	}
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return header{}, err
	}
	h := parseHeader(b[:])
	return h, h.check()
}

// receiver takes a frame; its error is the peer's fault, and ends the connection.
type receiver func(frame []byte) error

// route says who gets a frame; nobody is nil. An error is the peer's fault, and ends
// the connection.
func (g *guard) route(h header) (receiver, error) {
	switch {
	case h.program == programKeepalive:
		g.keepalive(h)
		return nil, nil
	case h.kind == typeReply:
		return g.routeReply(h)
	case h.kind == typeMessage:
		return g.routeEvent(h), nil
	case h.kind == typeStream && h.status == statusContinue:
		return g.routeData(h), nil
	case h.kind == typeStream:
		return g.routeStream(h), nil
	}
	return nil, nil
}

func (g *guard) routeReply(h header) (receiver, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.calls[h.serial]
	if !ok {
		return g.streamRefusal(h), nil
	}
	if c.program != h.program || c.procedure != h.procedure {
		return nil, notLibvirt("the answer to call %d is of procedure %d, not %d", h.serial, h.procedure, c.procedure)
	}
	delete(g.calls, h.serial)
	if c.own == nil {
		return g.deliver, nil
	}
	if h.status == statusOK {
		g.streams[h.serial] = c.own
	}
	return c.own.answer, nil
}

// routeStream takes the daemon's last word on a stream.
func (g *guard) routeStream(h header) receiver {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.status == statusContinue {
		return nil
	}
	return g.lastOf(h)
}

// streamRefusal takes an error that ends a stream and comes as a reply: so libvirt answers a hole that it cannot make. The caller holds the lock.
func (g *guard) streamRefusal(h header) receiver {
	if h.status != statusError {
		return nil
	}
	return g.lastOf(h)
}

// lastOf is who gets the last word on a stream; nobody where it has been said. The caller holds the lock.
func (g *guard) lastOf(h header) receiver {
	s, ok := g.streams[h.serial]
	if !ok {
		return nil
	}
	delete(g.streams, h.serial)
	return s.answer
}

func (g *guard) deliver(frame []byte) error {
	if h := parseHeader(frame); h.program == programRemote {
		if err := checkAnswer(h, frame[headerLen:]); err != nil {
			return err
		}
	}
	select {
	case g.toLibrary <- frame:
	case <-g.dead:
	}
	return nil
}

// expect notes a call as sent. It comes before the sending, for the answer may be
// faster than the writer's return.
func (g *guard) expect(serial uint32, c call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.calls[serial]; ok {
		return fmt.Errorf("two calls with serial %d", serial)
	}
	g.calls[serial] = c
	if g.count != nil && c.program == programRemote {
		g.count(procedureName(c.procedure))
	}
	return nil
}

// send hands a frame to the writer; false means that the connection is dead.
func (g *guard) send(o outgoing) bool {
	select {
	case <-g.dead:
		return false
	default:
	}
	select {
	case g.outgoing <- o:
		return true
	case <-g.dead:
		return false
	}
}

// write puts frames on the connection, one at a time, keepalives first.
func (g *guard) write() {
	for {
		var o outgoing
		select {
		case o.frame = <-g.control:
		default:
			select {
			case o.frame = <-g.control:
			case o = <-g.outgoing:
			case <-g.dead:
				return
			}
		}
		g.notePing(o)
		if _, err := g.raw.Write(o.frame); err != nil {
			g.die(fmt.Errorf("sending failed: %w", err))
			return
		}
		if o.sent != nil {
			g.heard() // bulk data that gets through is a sign of life
			o.sent <- o.buffer
		}
	}
}

// hearing is the reading side of a guard's connection: every byte is a sign of life.
type hearing struct{ g *guard }

func (r hearing) Read(p []byte) (int, error) {
	n, err := r.g.raw.Read(p)
	if n > 0 {
		r.g.heard()
	}
	return n, err
}
