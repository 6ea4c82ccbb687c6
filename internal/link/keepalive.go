// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"time"
)

func (g *guard) heard() { g.unanswered.Store(-1) }

// sendControl never blocks: where two keepalive frames wait already, a third says nothing new.
func (g *guard) sendControl(procedure uint32) {
	select {
	case g.control <- keepaliveFrame(procedure):
	default:
	}
}

// keepalive takes a keepalive frame of the daemon's.
func (g *guard) keepalive(h header) {
	switch {
	case h.version != protocolVersion:
	case h.procedure == procPing:
		g.sendControl(procPong)
	case h.procedure == procPong:
		g.answerPing()
	}
}

// notePing keeps who wants to know of the answer, where what is about to be sent has a ping in it. The daemon answers in order.
func (g *guard) notePing(o outgoing) {
	if h := parseHeader(o.frame); o.pong == nil && (h.program != programKeepalive || h.procedure != procPing) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pings = append(g.pings, o.pong)
}

func (g *guard) answerPing() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pings) == 0 {
		return
	}
	pong := g.pings[0]
	g.pings = g.pings[1:]
	select {
	case pong <- struct{}{}:
	default: // nobody wants to know
	}
}

// watch pings a silent daemon, and ends the connection when it leaves count pings
// unanswered. It looks at what arrives and never at what can be sent, so that a writer
// stuck in TCP does not keep it from finding out.
func (g *guard) watch(interval time.Duration, count int) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-g.dead:
			return
		case <-tick.C:
		}
		switch unanswered := int(g.unanswered.Add(1)); {
		case unanswered == 0: // something was heard since the last tick
		case unanswered > count:
			g.die(fmt.Errorf("%d keepalives, one every %v, were not answered", count, interval))
			return
		default:
			g.sendControl(procPing)
		}
	}
}
