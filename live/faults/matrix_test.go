// SPDX-License-Identifier: Apache-2.0

//go:build live

package faults

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/test/drills"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

var (
	only   = flag.String("only", "", "run the operations of that `name` only, a regular expression")
	sample = flag.Int("sample", 0, "take so many steps of each operation; 0 for all")
)

// A reduced run kills the operator at reducedCases of the steps that change something, of these operations.
const reducedCases = 4

var reducedOperations = []string{"create", "delete"}

// tries is how often a step that a run did not come to is tried: a Proxy may go to the other host, and what happens at once has no order.
const tries = 4

type operation = faults.Operation[*world]

func operations() []operation {
	pattern := regexp.MustCompile("^(?:" + *only + ")$")
	return slices.DeleteFunc(faults.Operations[*world](), func(o operation) bool {
		return *only != "" && !pattern.MatchString(o.Name) || *only == "" && !drills.Full() && !slices.Contains(reducedOperations, o.Name)
	})
}

// changing are the methods of a Backend that change its host.
var changing = []string{"StartPool", "CreateVolume", "DeleteVolume", "Upload", "SetMetadata", "Define", "Start", "Resume", "Destroy", "Undefine"}

func changes(s faults.Step) bool {
	method, _, _ := strings.Cut(strings.Split(string(s), ".")[1], "-")
	return slices.Contains(changing, method)
}

// kindAt is the fault at the n-th step: where something changes, the operator is killed, before and after in turn.
func kindAt(n int, s faults.Step, kinds []faults.Kind) faults.Kind {
	if changes(s) {
		deadly := slices.DeleteFunc(slices.Clone(kinds), func(k faults.Kind) bool { return !k.Kills() })
		return deadly[n%len(deadly)]
	}
	return kinds[n%len(kinds)]
}

// TestDrillMatrix runs each operation once for each of its steps, with one fault there.
func TestDrillMatrix(t *testing.T) {
	w := theWorld(t)
	cases, started := 0, time.Now()
	for _, o := range operations() {
		t.Run(o.Name, func(t *testing.T) {
			recorded := w.run(t, o, faults.Fault{})
			if recorded.failed() {
				t.Fatalf("without any fault: %s", recorded)
			}
			tally.Found(len(recorded.Steps), recorded.Methods)
			for n, step := range chosen(recorded.Steps) {
				kind := kindAt(n, step, recorded.Kinds[step])
				t.Run(string(step)+"/"+title(o, kind), func(t *testing.T) {
					cases++
					var got outcome
					for try := 0; try < tries && !got.fired && !got.failed(); try++ {
						got = w.run(t, o, faults.Fault{Step: step, Kind: kind})
					}
					tally.Case(got.fired, got.err == nil, len(got.left), len(got.touched))
					if got.failed() {
						t.Errorf("%s at %s: %s", kind, step, got)
					}
				})
			}
		})
	}
	w.t = t
	left := w.retire()
	tally.Left(len(left))
	if len(left) > 0 {
		t.Errorf("left, with the image wanted no more: %q", left)
	}
	fmt.Printf("figure: fault matrix on two real hosts: %d cases in %s\n", cases, time.Since(started).Round(time.Second))
}

// chosen are the steps that fail: all, or some of those that change something.
func chosen(all []faults.Step) []faults.Step {
	want := *sample
	if !drills.Full() && *only == "" {
		want = reducedCases / len(reducedOperations)
	}
	if want == 0 {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s faults.Step) bool { return !changes(s) })
	want = min(want, len(all))
	var some []faults.Step
	for i := range want {
		some = append(some, all[i*len(all)/want])
	}
	return some
}

func title(o operation, kind faults.Kind) string {
	if o.Row == "" {
		return string(kind)
	}
	return o.Row + ": " + string(kind)
}

// outcome of one run.
type outcome struct {
	answer
	fired         bool
	err           error
	left, touched []string
}

func (o outcome) failed() bool { return o.err != nil || len(o.left) > 0 || len(o.touched) > 0 }

func (o outcome) String() string {
	return fmt.Sprintf("%v\nleft: %s\ntouched, and not ours: %s", o.err, strings.Join(o.left, "\n  "), strings.Join(o.touched, "\n  "))
}

// run runs an operation with one fault.
func (w *world) run(t *testing.T, o operation, f faults.Fault) (got outcome) {
	t.Helper()
	w.begin(t)
	if o.Prepare != nil {
		o.Prepare(w)
	}
	w.arm(f)
	o.Begin(w)
	got.err = w.converge(func() error { return o.Reached(w) })
	var err error
	if f == (faults.Fault{}) {
		got.answer, err = w.operator.tell(t.Context(), order{})
		w.must(err)
	}
	w.rest(restTime)
	if got.err == nil {
		if err := o.Reached(w); err != nil {
			got.err = fmt.Errorf("it was reached, and lost again: %w", err)
		}
	}
	got.fired = w.fired
	w.disarm()
	w.bringPoolBack()
	if o.After != nil {
		o.After(w)
	}
	w.Remove()
	if err := w.converge(func() error {
		if err := w.Absent(); err != nil {
			return err
		}
		return w.Clean()
	}); err != nil {
		got.left = w.ofSubject()
		if got.err == nil {
			got.err = err
		}
	}
	got.touched = w.touched()
	return got
}

func (w *world) ofSubject() (all []string) {
	for host := range w.hosts {
		for _, o := range w.of(w.uid, host) {
			all = append(all, "host "+host+": "+o)
		}
	}
	return all
}

// begin brings the world to where nothing but the bystander is, whatever the case before did.
func (w *world) begin(t *testing.T) {
	t.Helper()
	w.t = t
	if w.cases > 0 && (w.proxy() != nil || w.Clean() != nil) {
		w.must(w.operator.fire())
		if p := w.proxy(); p != nil {
			w.Remove()
			before := p.DeepCopy()
			p.Finalizers = nil
			w.must(client.IgnoreNotFound(w.lab.Client.Patch(t.Context(), p, client.MergeFrom(before))))
		}
		w.RemoveByHand()
		w.start()
	}
	w.cases++
	w.subject, w.uid = fmt.Sprintf("subject-%d", w.cases), "00000000-0000-4000-8000-000000000000"
	w.turn()
	w.disarm()
	w.fired, w.reacted = false, false
	w.Sweep(false)
}

// retire has the bystander go, wants another image and another agent, and returns what is left of ours on the hosts.
func (w *world) retire() []string {
	w.t.Helper()
	w.subject, w.uid = "bystander", w.life.Bystander
	for o := range maps.Clone(w.foreign) {
		if strings.Contains(o, w.names.Domain(w.life.Bystander)) && w.life.class(o[strings.LastIndex(o, " ")+1:]) != o[strings.LastIndex(o, " ")+1:] {
			delete(w.foreign, o)
		}
	}
	w.Remove()
	w.Settle(w.Absent)
	text, err := os.ReadFile(w.lab.Providers)
	w.must(err)
	other := strings.ReplaceAll(string(text), w.lab.Images.Empty, w.lab.Images.Tiny) // which nobody asks for
	w.must(os.WriteFile(w.lab.Providers, []byte(other), 0o600))
	dir := filepath.Join(w.lab.Dir, "agents")
	w.must(os.Mkdir(dir, 0o755))
	w.must(agentsBeside(w.life.AgentDir, dir))
	w.life.AgentDir = dir
	w.restart(collector.On)
	left := func() (all []string) {
		for host := range w.hosts {
			for _, o := range w.own(host) {
				all = append(all, "host "+host+": "+o)
			}
		}
		return all
	}
	_ = w.converge(func() error { // what is left is what is returned
		if l := left(); len(l) > 0 {
			return fmt.Errorf("left: %q", l)
		}
		return nil
	})
	return left()
}
