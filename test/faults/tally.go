// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// maxMissed is the part of all cases, in percent, that may not be come to again: some waits have a random part, and what happens at once has no order.
const maxMissed = 2

// Tally is what all cases came to. The zero value is ready; it may be used by several goroutines.
type Tally struct {
	mu                                                  sync.Mutex
	methods                                             map[string]bool
	steps, injected, converged, missed, leaked, touched int
}

// Found counts the steps of an operation, and the methods of the Backend that it reached.
func (t *Tally) Found(steps int, methods []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.methods == nil {
		t.methods = map[string]bool{}
	}
	for _, m := range methods {
		t.methods[m] = true
	}
	t.steps += steps
}

// Case counts a case: whether its fault was made, whether the wanted state came, and how many things were left or touched.
func (t *Tally) Case(fired, converged bool, left, touched int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !fired:
		t.missed++
	default:
		t.injected++
		if converged {
			t.converged++
		}
	}
	t.leaked += left
	t.touched += touched
}

// Left counts what is left in the end, after the last case.
func (t *Tally) Left(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaked += n
}

// Print prints it, and says whether it is as it has to be. A part of the matrix need not reach every method.
func (t *Tally) Print(to io.Writer, part bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	methods := BackendMethods()
	missing := slices.DeleteFunc(slices.Clone(methods), func(m string) bool { return t.methods[m] })
	var b strings.Builder
	if len(missing) > 0 {
		fmt.Fprintf(&b, "no operation reaches: %s\n", strings.Join(missing, ", "))
	}
	if t.missed > 0 {
		fmt.Fprintf(&b, "%d cases were not come to again\n", t.missed)
	}
	fmt.Fprintf(&b, "coverage: %d/%d backend methods, %d steps\n", len(methods)-len(missing), len(methods), t.steps)
	fmt.Fprintf(&b, "faults: %d injected, %d converged, %d leaked, %d foreign touched\n", t.injected, t.converged, t.leaked, t.touched)
	_, _ = io.WriteString(to, b.String()) // standard output
	return (part || len(missing) == 0) && t.converged == t.injected && 100*t.missed <= maxMissed*t.injected && t.leaked == 0 && t.touched == 0
}
