// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

type operation = faults.Operation[*world]

// operations are all that an operator does towards hosts.
func operations() []operation {
	return slices.Concat(faults.Operations[*world](), creations(), repairs(), others())
}

func creations() []operation {
	onB := func(w *world) error { return w.ready("subject", hostB) }
	return []operation{
		{
			Name: "create-twice-at-once", Row: "X7", Begin: (*world).Create,
			Prepare: func(w *world) { w.twice = true },
			Reached: func(w *world) error { return w.ready("subject", faults.AnyHost) },
		},
		{
			Name: "create-though-the-next-operator-prefers-another-host", Row: "X17", Begin: (*world).Create,
			Prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.fickle = true
			},
			Reached: func(w *world) error { return w.ready("subject", faults.AnyHost) },
		},
		{
			Name: "create-with-a-cache-behind", Row: "X17", Begin: (*world).Create,
			Prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.fickle, w.behind = true, true
			},
			Reached: func(w *world) error { return w.ready("subject", faults.AnyHost) },
		},
		{
			Name: "create-on-the-next-host-with-a-cache-behind", Row: "X17", Begin: (*world).Create,
			Prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.noMemory[hostA], w.relents, w.behind = true, true, true
			},
			Reached: func(w *world) error { return w.ready("subject", faults.AnyHost) },
		},
		{
			Name: "create-what-cannot-be", Row: "M3", Begin: (*world).Create,
			Prepare: func(w *world) { w.undefinable = true },
			Reached: func(w *world) error { return errors.Join(w.refused("subject"), w.clean("subject")) },
		},
		{
			Name: "forget-after-the-fault", Row: "M3", // past the operator: what there is of it has no Proxy then
			Prepare: func(w *world) {
				w.settle(func() error { return prePulled(w) })
				w.sweeping = true
			},
			Begin: func(w *world) {
				w.onFault = func() {
					w.Change(func(p *v1alpha1.Proxy) { p.Finalizers = nil })
					w.Remove()
				}
				w.Create()
			},
			Reached: func(w *world) error {
				if w.reacted {
					return w.gone("subject")
				}
				return w.ready("subject", hostA)
			},
			After: func(w *world) { w.sweeping = false },
		},
		{Name: "create-on-the-next-host", Row: "X17", Prepare: func(w *world) { w.noMemory[hostA] = true }, Begin: (*world).Create, Reached: onB},
		{
			Name: "create-beside-a-full-pool", Row: "X17", Prepare: func(w *world) { w.hosts[hostA].FillPool(1 << 20) }, Begin: (*world).Create, Reached: onB,
			After: func(w *world) { w.hosts[hostA].FillPool(50 << 30) },
		},
		{
			Name: "fetch", Begin: func(*world) {}, Reached: prePulled,
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
	return []operation{
		{Name: "replace", Prepare: (*world).Make, Begin: func(w *world) { w.down(stateCrashed, 1) }, Reached: onA},
		{
			Name: "make-again-on-the-next-host", Row: "X17", Prepare: (*world).Make, Reached: func(w *world) error { return w.ready("subject", hostB) },
			Begin: func(w *world) {
				w.noMemory[hostA] = true
				w.LoseDomain()
			},
		},
	}
}

// others are of what goes on beside.
func others() []operation {
	return []operation{
		{
			Name: "listen-again", Prepare: (*world).Make, Begin: func(w *world) {
				for _, d := range w.hosts {
					d.CutEvents()
				}
				w.hosts[hostA].SetState(w.names.Domain(subjectUID), stateShutoff, 1)
			},
			Reached: func(w *world) error {
				for host, d := range w.hosts {
					if d.Listeners() == 0 {
						return fmt.Errorf("nobody listens to host %s", host)
					}
				}
				return w.ready("subject", hostA)
			},
		},
		{Name: "collect", Prepare: litter, Begin: func(w *world) { w.sweeping = true }, Reached: (*world).tidy, After: func(w *world) { w.sweeping = false }},
	}
}

// litter is what crashes and changes of the configuration leave.
func litter(w *world) {
	w.Make()
	d := w.hosts[hostA]
	source := w.names.Base(entryName, imageURL, "")
	d.AddVolume(source.NewVolume(), "unfinished")
	for _, s := range []libvirt.Source{w.names.Base(entryName, "https://images.example/old.img", ""), w.names.Agent(entryName, "x86_64", strings.Repeat("0", 64))} {
		volume := s.NewVolume()
		d.AddVolume(volume, "unwanted")
		d.AddVolume(w.marker(volume), "")
	}
	d.AddVolume(w.marker(source.NewVolume()), "")
	must(w.t, w.decoys().Orphan(ground{d}))
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

// ready is nil where a Proxy is Ready on a host, and has exactly one instance, there.
func (w *world) ready(name, host string) error {
	p := w.proxy(name)
	if p == nil {
		return errors.New("there is no Proxy " + name)
	}
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if host == faults.AnyHost {
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
