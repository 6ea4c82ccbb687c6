// SPDX-License-Identifier: Apache-2.0

// Package progress tells people what a command waits for.
package progress

import (
	"fmt"
	"io"
	"time"
)

// Printer prints to one writer. On a terminal the line that says what is waited for is written over each second; elsewhere
// it is printed when it changes.
type Printer struct {
	Out      io.Writer
	Terminal bool
	Now      func() time.Time

	waiting string
	since   time.Time
	printed time.Time
}

// Say prints a line that stays.
func (p *Printer) Say(format string, args ...any) {
	p.clear()
	_, _ = fmt.Fprintf(p.Out, format+"\n", args...)
}

// Waiting says what is waited for. It may be called as often as the caller looks.
func (p *Printer) Waiting(what string) {
	now := p.Now()
	changed := what != p.waiting
	if p.waiting == "" {
		p.since = now
	}
	p.waiting = what
	switch {
	case !p.Terminal && changed:
		_, _ = fmt.Fprintln(p.Out, "waiting for "+what)
	case p.Terminal && (changed || now.Sub(p.printed) >= time.Second):
		p.printed = now
		_, _ = fmt.Fprintf(p.Out, "\r\x1b[Kwaiting for %s (%d s)", what, int(now.Sub(p.since).Seconds()))
	}
}

// clear ends a wait.
func (p *Printer) clear() {
	if p.Terminal && p.waiting != "" {
		_, _ = fmt.Fprint(p.Out, "\r\x1b[K")
	}
	p.waiting = ""
}
