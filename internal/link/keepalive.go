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
