// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/binary"

	"github.com/digitalocean/go-libvirt"
)

// maxConsolePacket bounds what is taken of a console at a time; libvirt sends up to 256 KiB.
const maxConsolePacket = 1 << 20

// Console hands what a running domain's first console says to sink, until the guest is off: then it returns nil. Nothing that was said before
// is repeated. One console has one reader: the daemon refuses a second.
//
// sink is called from the link's own reader, so it must not block, nor keep the bytes: all other answers wait for it. A guest that talks
// without end delays the other answers of a link by the time that its packets take; that is why a console is best read over a link that nothing else
// needs in a hurry (see Keeper.Dedicated). It may carry many.
//
// The error is the daemon's libvirt.Error, a *DeadError, or wraps ctx's.
func (l *Link) Console(ctx context.Context, domain libvirt.Domain, sink func([]byte)) error {
	open, cancel := context.WithTimeoutCause(ctx, l.callTimeout, l.unanswered())
	defer cancel()
	if err := l.acquire(open); err != nil {
		return err
	}
	place := &slot{link: l}
	// As many answers as there can be: to the call, and the end of the stream; and the end of the data before it.
	s := &stream{answers: make(chan []byte, 3)}
	s.data = s.console(sink)
	s, err := l.guard.startStream(s, procOpenConsole, consoleArgs(domain))
	if err != nil {
		place.free()
		return err
	}
	select {
	case frame := <-s.answers:
		place.free()
		if err := refusal(frame); err != nil {
			return err
		}
	case <-open.Done():
		l.guard.workers.Go(func() { l.leaveUnopened(s, place) })
		return l.ended(open)
	case <-l.guard.dead:
		place.free()
		return l.lastWord(s)
	}
	return l.follow(ctx, s)
}

// leaveUnopened waits for the answer that nobody else waits for any more, for the stream is open from then on.
func (l *Link) leaveUnopened(s *stream, place *slot) {
	place.abandon()
	select {
	case frame := <-s.answers:
		if refusal(frame) == nil {
			l.guard.endStream(s, procOpenConsole, statusError)
		}
	case <-l.guard.dead:
	}
	place.free()
}

func (l *Link) follow(ctx context.Context, s *stream) error {
	select {
	case frame := <-s.answers:
		if h := parseHeader(frame); h.status == statusContinue { // the end of the data: the guest is off
			l.guard.endStream(s, procOpenConsole, statusOK)
			return nil
		}
		return refusal(frame)
	case <-ctx.Done():
		l.guard.endStream(s, procOpenConsole, statusError)
		return l.ended(ctx)
	case <-l.guard.dead:
		return l.lastWord(s)
	}
}

// console takes a packet; an empty one is the end of the data.
func (s *stream) console(sink func([]byte)) func(frame []byte) {
	return func(frame []byte) {
		if len(frame) > headerLen {
			sink(frame[headerLen:])
			return
		}
		select {
		case s.answers <- frame:
		default: // said already
		}
	}
}

// routeData takes what a stream brings that was asked for.
func (g *guard) routeData(h header) receiver {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.streams[h.serial]
	if !ok || s.data == nil || h.length > headerLen+maxConsolePacket {
		return nil
	}
	return func(frame []byte) error {
		s.data(frame)
		return nil
	}
}

// endStream says the last word from our side: statusOK agrees to an end, statusError breaks off. What the daemon says after it goes nowhere.
func (g *guard) endStream(s *stream, procedure, status uint32) {
	g.mu.Lock()
	delete(g.streams, s.serial)
	g.mu.Unlock()
	g.send(outgoing{frame: header{
		program: programRemote, version: protocolVersion, procedure: procedure, kind: typeStream, serial: s.serial, status: status,
	}.frame(nil)})
}

// consoleArgs encodes remote_domain_open_console_args, without a device, which is the first console, and without flags.
func consoleArgs(domain libvirt.Domain) []byte {
	b := appendString(nil, domain.Name)
	b = append(b, domain.UUID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(domain.ID))
	b = binary.BigEndian.AppendUint32(b, 0)
	return binary.BigEndian.AppendUint32(b, 0)
}
