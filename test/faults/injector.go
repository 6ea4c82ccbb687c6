// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Errors of calls that never reached anybody, or whose answer did not come back.
var (
	ErrDead = errors.New("the operator was killed")
	ErrLost = errors.New("the answer was lost")
)

// repeats is how many calls of background work that are alike are steps: it polls for as long as an operation takes, and one poll is like another.
const repeats = 4

// outage is how long a host stays away after its link was cut.
const outage = 3 * time.Second

// Injector is one world's: it records the calls of all operators that live in it, one after the other, and makes at most one fault.
type Injector struct {
	// Class is what an object is, by its name: the same in every run, where names may have a random part.
	Class func(object string) string
	// State is what a host holds, so that calls which change it are told from those that only ask; nil where nobody has to know.
	State func(host string) string
	// Untold: nothing tells the calls of a pass from those of background work.
	Untold bool
	// Fire, if it is not nil, is told as the fault is made; Exit ends the process of an operator that is killed. Neither may call the Injector.
	Fire func(Kind)
	Exit func()

	mu       sync.Mutex
	armed    bool
	fault    Fault
	fired    bool
	counts   map[string]int
	steps    []Step
	kinds    map[Step][]Kind
	methods  map[string]bool
	log      []string
	outages  map[string]time.Time
	cutLinks map[string][]context.CancelCauseFunc
}

// Arm begins to count the calls, and makes the fault where its step comes; none where it is empty.
func (i *Injector) Arm(f Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.armed, i.fault, i.fired = true, f, false
	i.counts, i.steps, i.kinds, i.methods = map[string]int{}, nil, map[Step][]Kind{}, map[string]bool{}
}

// Disarm ends it.
func (i *Injector) Disarm() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.armed = false
}

// Fired says whether the fault was made.
func (i *Injector) Fired() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fired
}

// Steps since Arm, in the order in which they came.
func (i *Injector) Steps() []Step {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.steps)
}

// KindsOf are the kinds that differ at a step since Arm.
func (i *Injector) KindsOf(s Step) []Kind {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.kinds[s]
}

// Methods of the Backend that were called since Arm.
func (i *Injector) Methods() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []string
	for m := range i.methods {
		all = append(all, m)
	}
	return all
}

// Log is every call of the world with its outcome, for who reads a failure.
func (i *Injector) Log() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strings.Join(i.log, "\n")
}

// Note puts a line into the log.
func (i *Injector) Note(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.log = append(i.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// call is one call on its way.
type call struct {
	// to is the host, or "api".
	to, method, object string
	// lasting calls go on until something ends them, and closing ones have no answer.
	lasting, closing bool
}

// kinds that can be made at a call. What changes nothing has no effect that could come before its answer is lost.
func (c call) kinds(changed bool) []Kind {
	var all []Kind
	for _, k := range Kinds() {
		switch {
		case c.closing && (k == Lost || k == Refused || k == Ended || k == EndedLate):
		case c.lasting && (k == Lost || !k.before()):
		case !changed && (k == EndedLate || k == KilledLate):
		default:
			all = append(all, k)
		}
	}
	return all
}

// reach counts a call, and says what goes wrong with it; empty for nothing.
func (i *Injector) reach(ctx context.Context, c call) (Step, Kind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	who := i.whoOf(ctx)
	name := c.to + "." + who + c.method
	if class := i.Class(c.object); class != "" {
		name += "." + class
	}
	if !i.armed {
		return Step(name), ""
	}
	if c.to != api {
		method, _, _ := strings.Cut(c.method, "-")
		i.methods[method] = true
	}
	i.counts[name]++
	if (who != "" || i.Untold) && i.counts[name] > repeats {
		return Step(name), ""
	}
	step := Step(fmt.Sprintf("%s.%d", name, i.counts[name]))
	i.steps = append(i.steps, step)
	i.kinds[step] = c.kinds(c.to == api || i.State == nil)
	if step != i.fault.Step || i.fired {
		return step, ""
	}
	i.fired = true
	if i.Fire != nil {
		i.Fire(i.fault.Kind)
	}
	if i.fault.Kind == Cut {
		i.cut(c.to)
	}
	return step, i.fault.Kind
}

// cut breaks all links to a host. The caller holds the lock.
func (i *Injector) cut(host string) {
	if i.outages == nil {
		i.outages = map[string]time.Time{}
	}
	i.outages[host] = time.Now().Add(outage)
	for _, end := range i.cutLinks[host] {
		end(unreachable(host))
	}
	delete(i.cutLinks, host)
}

// link registers what ends when the link to a host is cut.
func (i *Injector) link(host string, end context.CancelCauseFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cutLinks == nil {
		i.cutLinks = map[string][]context.CancelCauseFunc{}
	}
	i.cutLinks[host] = append(i.cutLinks[host], end)
}

// away is the error of a host that cannot be reached, or nil.
func (i *Injector) away(host string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Now().Before(i.outages[host]) {
		return unreachable(host)
	}
	return nil
}

func unreachable(host string) error {
	return &libvirt.HostError{Reason: provider.HostUnreachable, Message: "the link to " + host + " broke"}
}

// Life is one operator process: from its death on, no call of its reaches anything.
type Life struct {
	injector *Injector
	mu       sync.Mutex
	dead     bool
}

// NewLife begins an operator's life.
func (i *Injector) NewLife() *Life { return &Life{injector: i} }

// Dead says whether the operator was killed.
func (l *Life) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Kill ends it as kill -9 does.
func (l *Life) Kill() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	if l.injector.Exit != nil {
		l.injector.Exit()
	}
}

func (l *Life) alive() error {
	if l.Dead() {
		return ErrDead
	}
	return nil
}

// do makes a call, with the fault that comes with it.
func (l *Life) do(ctx context.Context, c call, effect func() error) (err error) {
	if err := errors.Join(l.alive(), ctx.Err()); err != nil {
		return err
	}
	if err := l.injector.away(c.to); err != nil {
		return err
	}
	step, kind := l.injector.reach(ctx, c)
	defer func() {
		l.injector.Note("%s %s%s: %v", step, c.object, mark(kind), err)
	}()
	if kind.Kills() && kind.before() {
		l.Kill()
	}
	if kind.before() {
		return l.wrong(ctx, c, kind)
	}
	done := l.injector.watch(step, c)
	err = effect()
	done()
	if kind != "" {
		if kind.Kills() {
			l.Kill()
		}
		return l.wrong(ctx, c, kind)
	}
	return errors.Join(l.alive(), err)
}

// watch sees whether a call changes its host.
func (i *Injector) watch(step Step, c call) (done func()) {
	if i.State == nil || c.to == api {
		return func() {}
	}
	before := i.State(c.to)
	return func() {
		changed := i.State(c.to) != before
		i.mu.Lock()
		defer i.mu.Unlock()
		if _, recorded := i.kinds[step]; recorded {
			i.kinds[step] = c.kinds(changed)
		}
	}
}

func mark(k Kind) string {
	if k == "" {
		return ""
	}
	return " *** " + string(k) + " ***"
}

// wrong is what the caller gets.
func (l *Life) wrong(ctx context.Context, c call, kind Kind) error {
	switch kind {
	case Refused:
		return refusal(c)
	case Cut:
		return unreachable(c.to)
	case Ended, EndedLate:
		if end, ok := ctx.Value(passKey{}).(context.CancelFunc); ok {
			end()
			return context.Canceled
		}
		return context.DeadlineExceeded // background work has no pass: it is the call's own time that ran out
	case Killed, KilledLate:
		return ErrDead
	case Lost:
	}
	return ErrLost
}

type passKey struct{}

// Pass gives the context of one pass of a controller, which a fault can end.
func Pass(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return context.WithValue(ctx, passKey{}, cancel), cancel
}

// whoOf tells calls of a pass from those of background work.
func (i *Injector) whoOf(ctx context.Context) string {
	if ctx.Value(passKey{}) == nil && !i.Untold {
		return "background."
	}
	return ""
}
