// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

var allKinds = flag.Bool("all-kinds", false, "make every kind of fault at every step, instead of one in turn")

// tries is how often a step that a run did not come to is tried: some waits have a random part, and what happens at once has no order.
const tries = 4

// tally is what all runs came to.
var tally faults.Tally

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
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			from := prepare(t, o)
			recorded := run(t, o, from, faults.Fault{})
			if recorded.failed() {
				t.Fatalf("without any fault: %s", recorded)
			}
			tally.Found(len(recorded.steps), recorded.methods)
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
	if o.Row == "" {
		return string(kind)
	}
	return o.Row + ": " + string(kind)
}

// inject runs an operation with one fault.
func inject(t *testing.T, o operation, from origin, f faults.Fault) {
	var got outcome
	for try := 0; try < tries && !got.fired; try++ {
		got = run(t, o, from, f)
	}
	tally.Case(got.fired, got.err == nil, len(got.left), len(got.touched))
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
		from.world = prepared(t, o.Prepare)
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
		w.injector.Note("--- %s begins", o.Name)
		w.lead = leadOf(f)
		w.injector.Arm(f)
		o.Begin(w)
		got.err = w.converge(func() error { return o.Reached(w) })
		got.steps, got.methods, got.kinds = w.injector.Steps(), w.injector.Methods(), map[faults.Step][]faults.Kind{}
		for _, s := range got.steps {
			got.kinds[s] = w.injector.KindsOf(s)
		}
		w.rest(checkEvery)
		if got.err == nil {
			if got.err = o.Reached(w); got.err != nil {
				got.err = fmt.Errorf("it was reached, and lost again: %w", got.err)
			}
		}
		got.fired = w.injector.Fired() || f == (faults.Fault{})
		w.injector.Disarm()
		w.injector.Note("--- everything is deleted")
		if o.After != nil {
			o.After(w)
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
