// SPDX-License-Identifier: Apache-2.0

package link

import "time"

const (
	// pingStep is how many bytes of an upload go between two pings, at least.
	pingStep = 256 << 10
	// queueLength is how many bytes of an upload may wait somewhere on the way to the daemon: more than can go without a ping.
	queueLength = 512 << 10
	// maxUnderway bounds what is on its way, in bytes: more than SSH itself lets through before the host takes it.
	maxUnderway = 8 << 20
	// maxPongs is more than the pings that can be unanswered.
	maxPongs = 2 * maxUnderway / pingStep
)

// pacer keeps short what waits on the way to the daemon. Without it, the host's sshd holds all that SSH's window lets through, two MiB, and moves the whole
// of it in memory with each packet that it adds: that takes it longer than all else that it does. The daemon answers a ping when it has read all that was
// sent before; so the answers say how much is on its way, how fast it is taken, and how long the way itself takes. What may be under way is what fits on
// the way, and queueLength.
type pacer struct {
	g     *guard
	pongs chan struct{}
	asked []ping // and not answered, in order

	total, known uint64 // bytes that were sent, and those that the daemon has read for sure
	unasked      int    // bytes since the last ping
	allowed      uint64 // bytes under way
	shortest     time.Duration
}

// ping is what there was when one was sent.
type ping struct {
	at           time.Time
	total, known uint64
}

func newPacer(g *guard) *pacer {
	return &pacer{g: g, pongs: make(chan struct{}, maxPongs), allowed: queueLength}
}

// start asks once while the way is free; it returns false when the connection is dead.
func (p *pacer) start() bool {
	p.ask()
	return p.g.send(outgoing{frame: keepaliveFrame(procPing), pong: p.pongs})
}

// ask notes a ping that is about to be sent.
func (p *pacer) ask() {
	p.unasked = 0
	p.asked = append(p.asked, ping{time.Now(), p.total, p.known})
}

// counts n bytes that are about to be sent.
func (p *pacer) counts(n int) {
	p.total += uint64(n)
	p.unasked += n
}

// sends counts n bytes, and returns who is told of the answer to a ping that has to follow them; nil where none is due.
func (p *pacer) sends(n int) chan<- struct{} {
	p.counts(n)
	if p.unasked < pingStep {
		return nil
	}
	p.ask()
	return p.pongs
}

// wait returns when more may be sent; false when the connection is dead.
func (p *pacer) wait() bool {
	for {
		select {
		case <-p.pongs:
			p.answered(time.Now())
			continue
		default:
		}
		if p.total-p.known <= p.allowed {
			return true
		}
		select {
		case <-p.pongs:
			p.answered(time.Now())
		case <-p.g.dead:
			return false
		}
	}
}

// answered looks at the oldest ping.
func (p *pacer) answered(now time.Time) {
	ping := p.asked[0]
	p.asked = p.asked[1:]
	p.known = ping.total
	took := max(now.Sub(ping.at), time.Microsecond)
	if p.shortest == 0 || took < p.shortest {
		p.shortest = took
	}
	// What the daemon read while the ping was under way, for the share of that time that an empty way takes.
	fits := float64(p.known-ping.known) * float64(p.shortest) / float64(took)
	p.allowed = min(uint64(fits)+queueLength, maxUnderway)
}
