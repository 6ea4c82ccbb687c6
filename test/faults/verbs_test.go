// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

// The world in memory is a faults.World.

var _ faults.World = (*world)(nil)

func (w *world) Create() { w.create("subject", subjectUID, nil) }

// Make has the subject Ready on hostA, as users would meet it.
func (w *world) Make() {
	w.Create()
	w.settle(func() error { return w.ready("subject", hostA) })
}

func (w *world) Change(change func(*v1alpha1.Proxy)) { w.update("subject", change) }

func (w *world) Remove() { w.remove("subject") }

func (w *world) Made() string { return hostA }

func (w *world) Ready(host string) error { return w.ready("subject", host) }

func (w *world) Retained(host string) error {
	return w.instance(host, func(m libvirt.Mark) bool { return m.Retained })
}

func (w *world) Absent() error { return w.without("subject") }

func (w *world) Clean() error { return w.clean("subject") }

func (w *world) Tidy() error { return w.tidy() }

// down has the subject be in another state.
func (w *world) down(state, reason int) {
	w.hosts[hostA].SetState(w.names.Domain(subjectUID), state, reason)
	w.operator.wake("subject")
}

func (w *world) PowerOff() { w.down(stateShutoff, 1) }

func (w *world) Pause() { w.down(statePaused, reasonIOError) }

// LoseDisk has its disk be gone, which the daemon has not noticed.
func (w *world) LoseDisk() {
	w.hosts[hostA].RemoveFile(w.names.Overlay(subjectUID))
	w.PowerOff()
}

func (w *world) LoseDomain() {
	w.hosts[hostA].RemoveDomain(w.names.Domain(subjectUID))
	w.operator.wake("subject")
}

// Snapshot is nothing here: what a daemon keeps beside a domain is below the Backend.
func (w *world) Snapshot() {}

// RemoveByHand takes the subject's instance off hostA.
func (w *world) RemoveByHand() {
	w.t.Helper()
	p := w.operator.provider
	for err := error(nil); !provider.IsNotFound(err); {
		err = p.Delete(w.t.Context(), provider.InstanceRef{Host: hostA, UID: subjectUID})
		if err != nil && !provider.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) FailRefresh() { w.hosts[hostA].FailRefreshes(1) }

// Cold is what hostA is from the beginning.
func (w *world) Cold() {}

func (w *world) LeaveVolumes() {
	uid := uuid.NewString()
	w.hosts[hostA].AddVolume(w.names.Overlay(uid), "no domain")
	w.hosts[hostA].AddVolume(w.names.Seed(uid), "no domain")
}

func (w *world) Away(away bool) { w.away[hostA] = away }

func (w *world) Sweep(on bool) { w.sweeping = on }

func (w *world) SweepAll() { w.sweepAll() }

func (w *world) OnFault(do func()) { w.onFault = do }

func (w *world) Reacted() bool { return w.reacted }

func (w *world) Errorf(format string, args ...any) { w.t.Errorf(format, args...) }

// ground is a daemon in memory.
type ground struct{ *libvirttest.Daemon }

func (g ground) Volume(name, content string) error {
	g.AddVolume(name, content)
	return nil
}

func (g ground) Domain(xml string, running bool) error {
	var def libvirtxml.Domain
	if err := def.Unmarshal(xml); err != nil {
		return err
	}
	err := g.DefineXML(xml)
	if err == nil && running {
		g.SetState(def.Name, stateRunning, 1)
	}
	return err
}

// decoys of this world.
func (w *world) decoys() faults.Decoys {
	return faults.Decoys{Names: w.names, Entry: entryName, Pool: "default", Image: imageURL, UID: subjectUID}
}
