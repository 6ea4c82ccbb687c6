// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

// operation is one thing that an operator does, from a state of the world to another.
type operation struct {
	name string
	// row of the required behaviour that the operation's faults prove.
	row string
	// prepare brings the world to where it begins, without faults; nil for a world with the bystander alone.
	prepare func(*world)
	// begin is what somebody does, or what happens, so that the operator has something to do.
	begin func(*world)
	// reached is nil once the operator has done it.
	reached func(*world) error
	// after is what has to be undone or done by hand before the world is empty; nil for nothing.
	after func(*world)
}

// operations are all that an operator does towards hosts.
func operations() []operation {
	return append(creations(), append(repairs(), removals()...)...)
}

func creations() []operation {
	onA := func(w *world) error { return w.ready("subject", hostA) }
	onB := func(w *world) error { return w.ready("subject", hostB) }
	return []operation{
		{name: "create", row: "X7", begin: createSubject, reached: onA},
		{
			name: "create-twice-at-once", row: "X7", begin: createSubject,
			prepare: func(w *world) { w.twice = true },
			reached: func(w *world) error { return w.ready("subject", anyHost) },
		},
		{
			name: "create-though-the-next-operator-prefers-another-host", row: "X17", begin: createSubject,
			prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.fickle = true
			},
			reached: func(w *world) error { return w.ready("subject", anyHost) },
		},
		{
			name: "create-with-a-cache-behind", row: "X17", begin: createSubject,
			prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.fickle, w.behind = true, true
			},
			reached: func(w *world) error { return w.ready("subject", anyHost) },
		},
		{
			name: "create-what-cannot-be", row: "M3", begin: createSubject,
			prepare: func(w *world) { w.undefinable = true },
			reached: func(w *world) error { return errors.Join(w.refused("subject"), w.clean("subject")) },
		},
		{
			name: "give-up-after-the-fault", row: "M3", begin: createSubject,
			prepare: func(w *world) { w.onFault = func(w *world) { w.remove("subject") } },
			reached: func(w *world) error {
				if w.reacted {
					return w.gone("subject")
				}
				return w.ready("subject", hostA)
			},
		},
		{
			name: "forget-after-the-fault", row: "M3", begin: createSubject, // past the operator: what there is of it has no Proxy then
			prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.sweeping = true
				w.onFault = func(w *world) {
					w.update("subject", func(p *v1alpha1.Proxy) { p.Finalizers = nil })
					w.remove("subject")
				}
			},
			reached: func(w *world) error {
				if w.reacted {
					return w.gone("subject")
				}
				return w.ready("subject", hostA)
			},
			after: func(w *world) { w.sweeping = false },
		},
		{name: "create-on-the-next-host", row: "X17", prepare: func(w *world) { w.noMemory[hostA] = true }, begin: createSubject, reached: onB},
		{
			name: "create-beside-a-full-pool", row: "X17", prepare: func(w *world) { w.hosts[hostA].FillPool(1 << 20) }, begin: createSubject, reached: onB,
			after: func(w *world) { w.hosts[hostA].FillPool(50 << 30) },
		},
		{name: "create-while-the-pool-stops", prepare: func(w *world) { w.hosts[hostA].FailRefreshes(1) }, begin: createSubject, reached: onA},
		{
			name: "fetch", begin: func(*world) {}, reached: prePulled,
		},
	}
}

// prePulled has hostA fetch what instances need, and is nil once it holds that.
func prePulled(w *world) error {
	ctx, cancel := faults.Pass(w.operator.ctx, pace.Reconcile)
	defer cancel()
	if err := w.operator.provider.PrePull(ctx, hostA); err != nil {
		return err
	}
	return w.published(hostA)
}

func repairs() []operation {
	onA := func(w *world) error { return w.ready("subject", hostA) }
	state := func(state, reason int) func(*world) {
		return func(w *world) {
			w.hosts[hostA].SetState(w.names.Domain(subjectUID), state, reason)
			w.operator.wake("subject")
		}
	}
	return []operation{
		{name: "start", prepare: makeSubject, begin: state(stateShutoff, 1), reached: onA},
		{name: "resume", prepare: makeSubject, begin: state(statePaused, reasonIOError), reached: onA},
		{name: "replace", prepare: makeSubject, begin: state(stateCrashed, 1), reached: onA},
		{
			name: "rebuild", prepare: makeSubject, reached: onA, // its disk is gone, and the daemon has not noticed: of L4
			begin: func(w *world) {
				w.hosts[hostA].RemoveFile(w.names.Overlay(subjectUID))
				state(stateShutoff, 1)(w)
			},
		},
		{
			name: "make-again", prepare: makeSubject, reached: onA, // of L6 and X10
			begin: func(w *world) {
				w.hosts[hostA].RemoveDomain(w.names.Domain(subjectUID))
				w.operator.wake("subject")
			},
		},
		{
			name: "make-again-on-the-next-host", row: "X17", prepare: makeSubject, reached: func(w *world) error { return w.ready("subject", hostB) },
			begin: func(w *world) {
				w.noMemory[hostA] = true
				w.hosts[hostA].RemoveDomain(w.names.Domain(subjectUID))
				w.operator.wake("subject")
			},
		},
	}
}

func removals() []operation {
	gone := func(w *world) error { return w.gone("subject") }
	return []operation{
		{name: "delete", prepare: makeSubject, begin: func(w *world) { w.remove("subject") }, reached: gone},
		{
			name: "delete-what-is-left", prepare: makeSubject, reached: gone, // of M3
			begin: func(w *world) {
				w.hosts[hostA].RemoveDomain(w.names.Domain(subjectUID))
				w.remove("subject")
			},
		},
		{
			name: "retain", prepare: func(w *world) {
				makeSubject(w)
				w.update("subject", func(p *v1alpha1.Proxy) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
			},
			begin: func(w *world) { w.remove("subject") },
			reached: func(w *world) error {
				return errors.Join(w.without("subject"), w.instance(hostA, func(m libvirt.Mark) bool { return m.Retained }))
			},
			after: func(w *world) {
				w.sweepAll()
				if err := w.instance(hostA, func(m libvirt.Mark) bool { return m.Retained }); err != nil {
					w.t.Errorf("the retained instance: %v", err)
				}
				w.removeByHand(hostA)
			},
		},
		{
			name: "abandon", prepare: func(w *world) {
				makeSubject(w)
				w.away[hostA] = true
			},
			begin: func(w *world) {
				w.update("subject", func(p *v1alpha1.Proxy) {
					p.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.AbandonConfirmed}
				})
				w.remove("subject")
			},
			reached: func(w *world) error { return w.without("subject") },
			after: func(w *world) {
				delete(w.away, hostA)
				w.sweepAll()
				if left := w.ofSubject(hostA); len(left) > 0 {
					w.t.Errorf("its host is back, and what was abandoned is not collected: %q", left)
				}
			},
		},
		{
			name: "listen-again", prepare: makeSubject, begin: func(w *world) {
				for _, d := range w.hosts {
					d.CutEvents()
				}
				w.hosts[hostA].SetState(w.names.Domain(subjectUID), stateShutoff, 1)
			},
			reached: func(w *world) error {
				for host, d := range w.hosts {
					if d.Listeners() == 0 {
						return fmt.Errorf("nobody listens to host %s", host)
					}
				}
				return w.ready("subject", hostA)
			},
		},
		{
			name: "collect-volumes-alone", row: "M3", prepare: volumesAlone, begin: func(w *world) { w.sweeping = true }, reached: (*world).tidy,
			after: func(w *world) { w.sweeping = false },
		},
		{name: "collect", prepare: litter, begin: func(w *world) { w.sweeping = true }, reached: (*world).tidy, after: func(w *world) { w.sweeping = false }},
	}
}

func createSubject(w *world) { w.create("subject", subjectUID, nil) }

// makeSubject has the subject Ready on hostA, as users would meet it, and a disk of a user's backed by the same base.
func makeSubject(w *world) {
	createSubject(w)
	w.settle(func() error { return w.ready("subject", hostA) })
}

// litter is what crashes and changes of the configuration leave.
func litter(w *world) {
	makeSubject(w)
	d := w.hosts[hostA]
	source := w.names.Base(entryName, imageURL, "")
	d.AddVolume(source.NewVolume(), "unfinished")
	for _, s := range []libvirt.Source{w.names.Base(entryName, "https://images.example/old.img", ""), w.names.Agent(entryName, "x86_64", strings.Repeat("0", 64))} {
		volume := s.NewVolume()
		d.AddVolume(volume, "unwanted")
		d.AddVolume(w.marker(volume), "")
	}
	d.AddVolume(w.marker(source.NewVolume()), "")
	plantInstance(w.t, d, w.names, entryName, uuid.NewString())
}

// volumesAlone are what a crash in the midst of a creation leaves, of a Proxy that is gone.
func volumesAlone(w *world) {
	makeSubject(w)
	uid := uuid.NewString()
	w.hosts[hostA].AddVolume(w.names.Overlay(uid), "no domain")
	w.hosts[hostA].AddVolume(w.names.Seed(uid), "no domain")
}

func (w *world) marker(volume string) string {
	w.t.Helper()
	m, err := libvirt.Marker(volume, libvirt.Content{SHA256: strings.Repeat("0", 64), Size: 8, Format: "raw", VirtualSize: 8})
	must(w.t, err)
	return m
}

// tidy: a host holds nothing but what is needed.
func (w *world) tidy() error {
	own := w.own(hostA)
	if len(own) != 7 { // a domain, its overlay and seed, a base and an agent with their markers
		return fmt.Errorf("host a holds %q", own)
	}
	return w.ready("subject", hostA)
}

// anyHost is where a Proxy is that may be on either.
const anyHost = ""

// ready is nil where a Proxy is Ready on a host, and has exactly one instance, there.
func (w *world) ready(name, host string) error {
	p := w.proxy(name)
	if p == nil {
		return errors.New("there is no Proxy " + name)
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if host == anyHost {
		host = p.Status.Host
	}
	if ready == nil || ready.Status != "True" || p.Status.Host != host {
		return fmt.Errorf("Proxy %s is on host %q, and its condition Ready is %+v", name, p.Status.Host, ready)
	}
	if name != "subject" {
		return nil
	}
	return w.instance(host, func(m libvirt.Mark) bool { return !m.Retained })
}

// instance is nil where the subject has one instance in all: on that host, whole, running, and with a mark as it should be.
func (w *world) instance(host string, marked func(libvirt.Mark) bool) error {
	want := []string{"domain " + w.names.Domain(subjectUID), "volume " + w.names.Overlay(subjectUID), "volume " + w.names.Seed(subjectUID)}
	slices.Sort(want)
	if w.hosts[host] == nil {
		return errors.New("the subject has no host yet")
	}
	for other := range w.hosts {
		has := w.ofSubject(other)
		if other == host && !slices.Equal(has, want) || other != host && len(has) > 0 {
			return fmt.Errorf("host %s has %q of the subject, which is to be on host %s", other, has, host)
		}
	}
	b := w.hosts[host].Backend()
	defer b.Close()
	info, err := b.Domain(w.t.Context(), w.names.Domain(subjectUID))
	if err != nil || info.State != stateRunning || !info.Persistent {
		return fmt.Errorf("the domain: %+v, %w", info, err)
	}
	if missing := w.hosts[host].MissingFiles(info.Name); len(missing) > 0 {
		return fmt.Errorf("the guest runs on files that are gone: %q", missing)
	}
	if seed, _ := w.hosts[host].Content(w.names.Seed(subjectUID)); len(bytes.Trim(seed, "\x00")) == 0 {
		return errors.New("the seed is empty")
	}
	text, err := b.Metadata(w.t.Context(), info.Name, libvirt.MarkNamespace)
	if err != nil {
		return err
	}
	mark, err := libvirt.DecodeMark(text)
	if err == nil && !marked(mark) {
		err = fmt.Errorf("the mark is %+v", mark)
	}
	return err
}

// ofSubject are the objects on a host that belong to the subject's instance.
func (w *world) ofSubject(host string) []string {
	return slices.DeleteFunc(w.own(host), func(o string) bool {
		return !strings.Contains(o, w.names.Domain(subjectUID))
	})
}

// published is nil where a host holds one base and one agent that can be used.
func (w *world) published(host string) error {
	var markers []string
	for _, o := range w.own(host) {
		if strings.Contains(o, ".img.v1.") {
			markers = append(markers, o)
		}
	}
	if len(markers) != 2 {
		return fmt.Errorf("host %s has the markers %q", host, markers)
	}
	return nil
}

// without is nil where there is no Proxy of that name.
func (w *world) without(name string) error {
	if p := w.proxy(name); p != nil {
		return fmt.Errorf("Proxy %s is still there: %+v", name, p.Status.Conditions)
	}
	return nil
}

// refused is nil where the Proxy says that it cannot be made.
func (w *world) refused(name string) error {
	p := w.proxy(name)
	if p == nil {
		return errors.New("there is no Proxy " + name)
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
	if c == nil || c.Status != "False" || !strings.Contains(c.Message, "unsupported configuration") {
		return fmt.Errorf("Proxy %s says %+v", name, c)
	}
	return nil
}

// gone is nil where there is neither Proxy nor instance.
func (w *world) gone(name string) error {
	return errors.Join(w.without(name), w.clean(name))
}

// clean is nil where no host has anything of the subject's.
func (w *world) clean(name string) error {
	for host := range w.hosts {
		if left := w.ofSubject(host); len(left) > 0 {
			return fmt.Errorf("host %s has %q of %s", host, left, name)
		}
	}
	return nil
}

// restart replaces the operator, as an upgrade does.
func (w *world) restart() {
	w.operator.stop()
	w.start()
}

// sweepAll lets the collector look for as long as it takes to collect all that it would.
func (w *world) sweepAll() {
	w.sweeping = true
	w.rest(2*grace + 3*sweepEvery)
	w.sweeping = false
}

// removeByHand takes the subject's instance off a host, as its user would.
func (w *world) removeByHand(host string) {
	w.t.Helper()
	p := w.operator.provider
	for err := error(nil); !provider.IsNotFound(err); {
		err = p.Delete(w.t.Context(), provider.InstanceRef{Host: host, UID: uuid.MustParse(subjectUID).String()})
		if err != nil && !provider.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
}

// clear deletes every Proxy, wants no image any more, and returns what is left on the hosts then of what an operator made, and what it touched of
// other people's.
func (w *world) clear() (left, touched []string, err error) {
	w.remove("subject")
	if err := w.converge(func() error { return w.gone("subject") }); err != nil {
		return nil, w.touched(), err
	}
	w.rest(time.Minute)
	touched = w.touched()
	for o := range w.foreign {
		if host, object, _ := strings.Cut(o, " "); w.ofBystander(object) {
			w.release(host, object)
		}
	}
	w.remove("bystander")
	if err := w.converge(func() error { return w.without("bystander") }); err != nil {
		return nil, touched, err
	}
	w.retired = true
	w.restart()
	w.sweepAll()
	for host := range w.hosts {
		for _, o := range w.own(host) {
			left = append(left, "host "+host+": "+o)
		}
	}
	slices.Sort(left)
	return left, append(touched, w.touched()...), nil
}

// ofBystander says of an object whether it belongs to the bystander's instance.
func (w *world) ofBystander(object string) bool {
	return strings.Contains(object, w.names.Domain(bystanderUID))
}
