// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

var allKinds = flag.Bool("all-kinds", false, "make every kind of fault at every step, instead of one in turn")

const (
	// tries is how often a step that a run did not come to is tried: some waits have a random part, and what happens at once has no order.
	tries = 4
	// maxMissed is the part of all cases, in percent, that may still not be come to.
	maxMissed = 2
)

// tally is what all runs came to.
var tally struct {
	sync.Mutex
	methods                    map[string]bool
	steps, injected, converged int
	missed                     int
	leaked, touched            int
	complete                   bool
}

// outcome of one run.
type outcome struct {
	fired         bool
	err           error
	left, touched []string
	log           string
	steps         []faults.Step
	kinds         map[faults.Step][]faults.Kind
	methods       []string
}

func TestMatrix(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			from := prepare(t, o)
			recorded := run(t, o, from, faults.Fault{})
			if recorded.failed() {
				t.Fatalf("without any fault: %s", recorded)
			}
			tally.Lock()
			for _, m := range recorded.methods {
				tally.methods[m] = true
			}
			tally.steps += len(recorded.steps)
			tally.Unlock()
			for n, step := range recorded.steps {
				t.Run(string(step), func(t *testing.T) {
					t.Parallel()
					kinds := recorded.kinds[step]
					if !*allKinds {
						kinds = kinds[n%len(kinds):][:1]
					}
					for _, kind := range kinds {
						t.Run(title(o, kind), func(t *testing.T) { inject(t, o, from, faults.Fault{Step: step, Kind: kind}) })
					}
				})
			}
		})
	}
}

func title(o operation, kind faults.Kind) string {
	if o.row == "" {
		return string(kind)
	}
	return o.row + ": " + string(kind)
}

// inject runs an operation with one fault.
func inject(t *testing.T, o operation, from origin, f faults.Fault) {
	var got outcome
	for try := 0; try < tries && !got.fired; try++ {
		got = run(t, o, from, f)
	}
	tally.Lock()
	defer tally.Unlock()
	if got.fired {
		tally.injected++
	}
	if !got.fired {
		tally.missed++
	}
	tally.leaked += len(got.left)
	tally.touched += len(got.touched)
	if got.fired && got.err == nil {
		tally.converged++
	}
	if got.failed() {
		t.Errorf("%s at %s: %s\nto run it alone: go test ./test/faults -count 1 -all-kinds -run '%s'", f.Kind, f.Step, got, alone(t.Name()))
	}
}

// alone is the pattern that runs one case.
func alone(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// origin is a world in which an operation can begin, and the time there.
type origin struct {
	world *world
	at    time.Time
}

func prepare(t *testing.T, o operation) (from origin) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		from.world = prepared(t, o.prepare)
		from.at = time.Now()
	})
	return from
}

// run runs an operation in a world of its own.
func run(t *testing.T, o operation, from origin, f faults.Fault) (got outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := copyOf(t, from.world, from.at)
		defer w.end()
		if f == (faults.Fault{}) {
			w.injector.State = w.state
		}
		w.injector.Note("--- %s begins", o.name)
		w.lead = leadOf(f)
		w.injector.Arm(f)
		o.begin(w)
		got.err = w.converge(func() error { return o.reached(w) })
		got.steps, got.methods, got.kinds = w.injector.Steps(), w.injector.Methods(), map[faults.Step][]faults.Kind{}
		for _, s := range got.steps {
			got.kinds[s] = w.injector.KindsOf(s)
		}
		w.rest(checkEvery)
		if got.err == nil {
			if got.err = o.reached(w); got.err != nil {
				got.err = fmt.Errorf("it was reached, and lost again: %w", got.err)
			}
		}
		got.fired = w.injector.Fired() || f == (faults.Fault{})
		w.injector.Disarm()
		w.injector.Note("--- everything is deleted")
		if o.after != nil {
			o.after(w)
		}
		var err error
		got.left, got.touched, err = w.clear()
		if got.err == nil {
			got.err = err
		}
		got.log = w.injector.Log()
	})
	return got
}

func (o outcome) failed() bool { return o.err != nil || len(o.left) > 0 || len(o.touched) > 0 }

func (o outcome) String() string {
	var all []string
	if !o.fired {
		all = append(all, "the operation did not come to this step")
	}
	if o.err != nil {
		all = append(all, o.err.Error())
	}
	if len(o.left) > 0 {
		all = append(all, "left:\n  "+strings.Join(o.left, "\n  "))
	}
	if len(o.touched) > 0 {
		all = append(all, "touched, and not ours:\n  "+strings.Join(o.touched, "\n  "))
	}
	return strings.Join(append(all, "what was called:", o.log), "\n")
}
