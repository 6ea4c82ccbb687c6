// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// The hosts of a World. A Proxy that is made goes to HostA, for HostB has the bystander's instance; AnyHost is where a Proxy is that may be on either.
const (
	HostA   = "a"
	HostB   = "b"
	AnyHost = ""
)

// World is two hosts with things of other people's, an API server, one operator after the other, and two Proxies: the bystander, which nobody touches, and the
// subject. It is in memory, or it is real.
type World interface {
	// Create makes the subject, and Make does so where that comes before the operation: its instance runs on HostA then.
	Create()
	Make()
	// Change and Remove are what its user does.
	Change(func(*v1alpha1.Proxy))
	Remove()

	// Made is where the subject goes that Create made.
	Made() (host string)
	// Ready is nil where the subject is as wanted on that host, with one instance in all, there and whole.
	Ready(host string) error
	// Retained is nil where its instance is, with a mark that says so.
	Retained(host string) error
	// Absent is nil where the API server has no subject, and Clean where no host has anything of its.
	Absent() error
	Clean() error
	// Tidy is nil where HostA has nothing but what is needed.
	Tidy() error

	// What happens to the subject on HostA, behind the operator's back.
	PowerOff()
	Pause()
	LoseDisk()
	LoseDomain()
	// Snapshot has its user make a snapshot of it.
	Snapshot()
	// RemoveByHand has its user remove what is left of it.
	RemoveByHand()
	// FailRefresh has the next refresh of HostA's pool fail.
	FailRefresh()
	// Cold empties HostA of what instances are made from, and LeaveVolumes puts there what is left of an instance of nobody's.
	Cold()
	LeaveVolumes()
	// Away takes HostA away, or brings it back.
	Away(bool)

	// Sweep has the collector work or rest, and SweepAll lets it work for as long as it takes to collect all that it would.
	Sweep(bool)
	SweepAll()
	// OnFault is done once the fault of the case was made, before another operator starts; Reacted says that it was.
	OnFault(func())
	Reacted() bool
	// Errorf fails the case.
	Errorf(format string, args ...any)
}

// Operation is one thing that an operator does, from a state of the world to another.
type Operation[W World] struct {
	Name string
	// Row of the required behaviour that the operation's faults prove, or empty.
	Row string
	// Prepare brings the world to where it begins, without faults; nil for a world with the bystander alone.
	Prepare func(W)
	// Begin is what somebody does, or what happens, so that the operator has something to do.
	Begin func(W)
	// Reached is nil once the operator has done it.
	Reached func(W) error
	// After is what has to be undone or done by hand before the world is empty; nil for nothing.
	After func(W)
}

// Operations are those that are the same in every world.
func Operations[W World]() []Operation[W] {
	make := W.Make
	onA := func(w W) error { return w.Ready(HostA) }
	made := func(w W) error { return w.Ready(w.Made()) }
	gone := func(w W) error { return errors.Join(w.Absent(), w.Clean()) }
	return []Operation[W]{
		{Name: "create", Row: "X7", Prepare: W.Cold, Begin: W.Create, Reached: made},
		{
			Name: "create-while-the-pool-stops", Prepare: W.FailRefresh, Begin: W.Create, // on the other host, where that is sooner
			Reached: func(w W) error { return w.Ready(AnyHost) },
		},
		{
			Name: "give-up-after-the-fault", Row: "M3", Prepare: W.Cold,
			Begin: func(w W) {
				w.OnFault(w.Remove)
				w.Create()
			},
			Reached: func(w W) error {
				if w.Reacted() {
					return gone(w)
				}
				return made(w)
			},
		},
		{Name: "start", Prepare: make, Begin: W.PowerOff, Reached: onA},
		{Name: "resume", Prepare: make, Begin: W.Pause, Reached: onA},
		{Name: "rebuild", Prepare: make, Begin: W.LoseDisk, Reached: onA},      // of L4
		{Name: "make-again", Prepare: make, Begin: W.LoseDomain, Reached: onA}, // of L6 and X10
		{
			Name: "delete", Begin: W.Remove, Reached: gone,
			Prepare: func(w W) {
				w.Make()
				w.Snapshot()
			},
		},
		{
			Name: "delete-what-is-left", Row: "M3", Prepare: make, Reached: gone,
			Begin: func(w W) {
				w.LoseDomain()
				w.Remove()
			},
		},
		retain[W](), abandon[W](),
		{
			Name: "collect-volumes-alone", Row: "M3",
			Prepare: func(w W) {
				w.Make()
				w.LeaveVolumes()
			},
			Begin:   func(w W) { w.Sweep(true) },
			Reached: func(w W) error { return errors.Join(w.Tidy(), w.Ready(HostA)) },
			After:   func(w W) { w.Sweep(false) },
		},
	}
}

func retain[W World]() Operation[W] {
	return Operation[W]{
		Name: "retain", Begin: W.Remove,
		Prepare: func(w W) {
			w.Make()
			w.Change(func(p *v1alpha1.Proxy) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
		},
		Reached: func(w W) error { return errors.Join(w.Absent(), w.Retained(HostA)) },
		After: func(w W) {
			w.SweepAll()
			if err := w.Retained(HostA); err != nil {
				w.Errorf("the retained instance: %v", err)
			}
			w.RemoveByHand()
		},
	}
}

func abandon[W World]() Operation[W] {
	return Operation[W]{
		Name:    "abandon",
		Prepare: func(w W) { w.Make(); w.Away(true) },
		Begin: func(w W) {
			w.Change(func(p *v1alpha1.Proxy) {
				p.Annotations = map[string]string{v1alpha1.AnnotationAbandon: v1alpha1.AbandonConfirmed}
			})
			w.Remove()
		},
		Reached: W.Absent,
		After: func(w W) {
			w.Away(false)
			w.SweepAll()
			if err := w.Clean(); err != nil {
				w.Errorf("its host is back, and what was abandoned is not collected: %v", err)
			}
		},
	}
}
