// SPDX-License-Identifier: Apache-2.0

//go:build live

package faults

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func fileLine(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("mode %s size %d changed %s content %x", info.Mode(), info.Size(), info.ModTime(), sha256.Sum256(content)), nil
}

// domainRunning is libvirt's number of it.
const domainRunning = 1

func (w *world) Create() { w.uid = w.create(w.subject, faults.AnyHost) }

// Make pins the subject, for an operation that is about HostA.
func (w *world) Make() {
	w.t.Helper()
	w.uid = w.create(w.subject, faults.HostA)
	w.Settle(func() error { return w.Ready(faults.HostA) })
}

func (w *world) Change(change func(*v1alpha1.Proxy)) {
	w.t.Helper()
	p := w.proxy()
	if p == nil {
		w.t.Fatal("there is no subject")
	}
	before := p.DeepCopy()
	change(p)
	w.must(w.lab.Client.Patch(w.t.Context(), p, client.MergeFrom(before)))
}

func (w *world) Remove() {
	w.t.Helper()
	if p := w.proxy(); p != nil {
		w.must(client.IgnoreNotFound(w.lab.Client.Delete(w.t.Context(), p)))
	}
}

// Made is any host: one that the new operator has not looked at yet is passed over.
func (w *world) Made() string { return faults.AnyHost }

// Ready: its guest halts at once, so what can be wanted is that the operator says where it runs.
func (w *world) Ready(host string) error {
	w.t.Helper()
	p := w.proxy()
	if p == nil {
		return errors.New("there is no subject")
	}
	if host == faults.AnyHost {
		host = p.Status.Host
	}
	if p.Status.Host != host || w.hosts[host] == nil || p.Status.ProviderID == "" {
		return fmt.Errorf("the subject is on host %q, and says %+v", p.Status.Host, p.Status.Conditions)
	}
	return w.instance(w.uid, host, func(m libvirt.Mark) bool { return !m.Retained })
}

func (w *world) Retained(host string) error {
	w.t.Helper()
	return w.instance(w.uid, host, func(m libvirt.Mark) bool { return m.Retained })
}

// instance is nil where a Proxy has one instance in all: on that host, whole, running, and with a mark as it should be.
func (w *world) instance(uid, host string, marked func(libvirt.Mark) bool) error {
	w.t.Helper()
	domain, overlay, seed := w.names.Domain(uid), w.names.Overlay(uid), w.names.Seed(uid)
	want := []string{"domain " + domain, "volume " + overlay, "volume " + seed}
	slices.Sort(want)
	for other := range w.hosts {
		has := w.of(uid, other)
		if other == host && !slices.Equal(has, want) || other != host && len(has) > 0 {
			return fmt.Errorf("host %s has %q of the instance, which is to be on host %s", other, has, host)
		}
	}
	info, err := w.hands[host].Domain(w.t.Context(), domain)
	if err != nil || info.State != domainRunning || !info.Persistent {
		return fmt.Errorf("the domain: %+v, %w", info, err)
	}
	content, err := os.ReadFile(filepath.Join(poolOf(w.hosts[host]), seed))
	if err != nil || len(bytes.Trim(content, "\x00")) == 0 {
		return fmt.Errorf("the seed is empty: %w", err)
	}
	text, err := w.hands[host].Metadata(w.t.Context(), domain, libvirt.MarkNamespace)
	if err != nil {
		return err
	}
	mark, err := libvirt.DecodeMark(text)
	if err == nil && !marked(mark) {
		err = fmt.Errorf("the mark is %+v", mark)
	}
	return err
}

// of are the objects on a host that belong to the instance of a Proxy, and are no decoys.
func (w *world) of(uid, host string) []string {
	w.t.Helper()
	domain := w.names.Domain(uid)
	var all []string
	domains, err := w.hands[host].Domains(w.t.Context())
	w.must(err)
	if slices.ContainsFunc(domains, func(d libvirt.DomainInfo) bool { return d.Name == domain }) {
		all = append(all, "domain "+domain)
	}
	for _, v := range []string{w.names.Overlay(uid), w.names.Seed(uid)} {
		if _, err := os.Stat(filepath.Join(poolOf(w.hosts[host]), v)); err == nil {
			all = append(all, "volume "+v)
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) Absent() error {
	w.t.Helper()
	if p := w.proxy(); p != nil {
		return fmt.Errorf("the subject is still there: %+v", p.Status.Conditions)
	}
	return nil
}

func (w *world) Clean() error {
	w.t.Helper()
	for host := range w.hosts {
		if left := w.of(w.uid, host); len(left) > 0 {
			return fmt.Errorf("host %s has %q", host, left)
		}
	}
	return nil
}

// Tidy: a domain, its overlay and seed, a base and an agent with their markers.
func (w *world) Tidy() error {
	w.t.Helper()
	if own := w.own(faults.HostA); len(own) != 7 {
		return fmt.Errorf("host a holds %q", own)
	}
	return nil
}

// virsh works on HostA.
func (w *world) virsh(args ...string) {
	w.t.Helper()
	if out, err := w.hosts[faults.HostA].Virsh(w.t.Context(), args...); err != nil {
		w.t.Fatalf("virsh %q: %v: %s", args, err, out)
	}
}

func (w *world) PowerOff() { w.virsh("destroy", w.names.Domain(w.uid)) }

// Pause: a guest that is reverted to a snapshot, and not let run on, is paused for that reason.
func (w *world) Pause() {
	domain := w.names.Domain(w.uid)
	w.virsh("snapshot-create-as", domain, "before")
	w.virsh("snapshot-revert", domain, "before", "--paused")
}

func (w *world) LoseDisk() {
	w.t.Helper()
	w.must(os.Remove(filepath.Join(poolOf(w.hosts[faults.HostA]), w.names.Overlay(w.uid))))
	w.PowerOff()
}

func (w *world) LoseDomain() {
	domain := w.names.Domain(w.uid)
	w.virsh("undefine", domain)
	w.virsh("destroy", domain)
}

func (w *world) Snapshot() { w.virsh("snapshot-create-as", w.names.Domain(w.uid), "by-its-user") }

// RemoveByHand takes the subject's instance off every host.
func (w *world) RemoveByHand() {
	w.t.Helper()
	ctx := w.t.Context()
	for host, hand := range w.hands {
		for _, o := range w.of(w.uid, host) {
			kind, name, _ := strings.Cut(o, " ")
			if kind == "domain" {
				_ = hand.Destroy(ctx, name) // it may be off
				w.must(hand.Undefine(ctx, name))
				continue
			}
			w.must(hand.DeleteVolume(ctx, name))
		}
	}
}

// FailRefresh takes the folder of the pool away until the daemon noticed: see mendPool.
func (w *world) FailRefresh() {
	w.t.Helper()
	pool := poolOf(w.hosts[faults.HostA])
	w.must(os.Rename(pool, pool+".away"))
	w.poolMoved = true
}

// poolPatience is how long a person waits before starting a pool that the operator did not start.
const poolPatience = 2 * time.Second

// mendPool brings the folder back once the pool is inactive, and starts it, as a person does, where the operator does not.
func (w *world) mendPool() {
	w.t.Helper()
	if !w.poolMoved {
		return
	}
	info, err := w.hands[faults.HostA].Pool(w.t.Context(), false)
	if err != nil || info.Active && w.poolOff.IsZero() {
		return
	}
	pool := poolOf(w.hosts[faults.HostA])
	switch {
	case w.poolOff.IsZero():
		w.must(os.Rename(pool+".away", pool))
		w.poolOff = time.Now()
	case info.Active:
		w.poolMoved, w.poolOff = false, time.Time{}
	case time.Since(w.poolOff) > poolPatience:
		w.virsh("pool-start", w.hosts[faults.HostA].PoolName)
	}
}

// bringPoolBack where nobody noticed that it was away, and waits until it works.
func (w *world) bringPoolBack() {
	w.t.Helper()
	if pool := poolOf(w.hosts[faults.HostA]); w.poolMoved && w.poolOff.IsZero() {
		w.must(os.Rename(pool+".away", pool))
		w.poolMoved = false
		w.lookAgain(faults.HostA)
	}
	w.Settle(func() error {
		if w.poolMoved {
			return errors.New("the pool of host a is not active yet")
		}
		return nil
	})
}

func (w *world) Cold() {
	w.t.Helper()
	for _, o := range w.own(faults.HostA) {
		_, name, _ := strings.Cut(o, " ")
		switch w.life.class(name) {
		case "base", "agent", "base-marker", "agent-marker":
			w.must(w.hands[faults.HostA].DeleteVolume(w.t.Context(), name))
		}
	}
}

func (w *world) LeaveVolumes() {
	w.t.Helper()
	uid := uuid.NewString()
	for _, v := range []string{w.names.Overlay(uid), w.names.Seed(uid)} {
		w.must(ground{w, faults.HostA}.Volume(v, "no domain"))
	}
	w.lookAgain(faults.HostA)
}

func (w *world) Away(away bool) {
	w.t.Helper()
	h := w.hosts[faults.HostA]
	w.away = away
	if away {
		w.must(h.Cut(w.t.Context(), kvmhost.SSHD))
		return
	}
	w.must(h.Mend(w.t.Context(), kvmhost.SSHD))
}

func (w *world) Sweep(on bool) {
	w.t.Helper()
	mode := collector.Off
	if on {
		mode = collector.On
	}
	if w.life.Collector != mode {
		w.restart(mode)
	}
}

func (w *world) SweepAll() {
	w.t.Helper()
	w.Sweep(true)
	w.rest(2*grace + grace/2)
	w.Sweep(false)
}

func (w *world) OnFault(do func()) { w.onFault = do }

func (w *world) Reacted() bool { return w.reacted }

func (w *world) Errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
}

// ground is a real host.
type ground struct {
	w    *world
	host string
}

func (g ground) Volume(name, content string) error {
	return os.WriteFile(filepath.Join(poolOf(g.w.hosts[g.host]), name), []byte(content), 0o600)
}

// lookAgain has a daemon see what files there are.
func (w *world) lookAgain(host string) {
	w.t.Helper()
	w.Settle(func() error {
		_, err := w.hands[host].Pool(w.t.Context(), true)
		return err
	})
}

func (g ground) Domain(xml string, running bool) error {
	var def libvirtxml.Domain
	if err := def.Unmarshal(xml); err != nil {
		return err
	}
	hand := g.w.hands[g.host]
	err := hand.Define(g.w.t.Context(), xml)
	if err == nil && running {
		err = hand.Start(g.w.t.Context(), def.Name)
	}
	return err
}
