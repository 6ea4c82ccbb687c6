// SPDX-License-Identifier: Apache-2.0

//go:build live

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const namespace = "default"

// Deadlines, from the steps that they bound: a fetch of a small image and the agent, a retry after backoff, and the start of another operator, on a busy machine.
const (
	convergeTime = 2 * time.Minute
	startTime    = time.Minute
	closeTime    = 2 * time.Minute
	pollEvery    = 50 * time.Millisecond
	restTime     = 500 * time.Millisecond
)

// world is a real faults.World: all cases share it, one after the other.
type world struct {
	t     *testing.T
	lab   *lab.Lab
	names libvirt.Names
	hosts map[string]*kvmhost.Host
	// hands reach the hosts' daemons past every operator.
	hands map[string]libvirt.Backend
	// foreign is all that is not the operator's, and the bystander's instance, as it was found: by host, kind and name.
	foreign  map[string]string
	operator *operator
	life     life

	cases     int
	subject   string
	uid       string
	fault     faults.Fault
	armed     bool
	fired     bool
	onFault   func()
	reacted   bool
	away      bool
	poolMoved bool
	poolOff   time.Time
}

var _ faults.World = (*world)(nil)

// theWorld is the one that all tests share, with the bystander's instance on HostB.
func theWorld(t *testing.T) *world {
	t.Helper()
	ran = true
	w := &world{t: t, hosts: map[string]*kvmhost.Host{}, hands: map[string]libvirt.Backend{}, foreign: map[string]string{}}
	shared = w
	for _, n := range []int{firstHost, secondHost} { // what a run left that was killed goes
		h := kvmhost.Up(t, n)
		if files, err := os.ReadDir(poolOf(h)); err != nil || len(files) > 0 {
			w.must(h.Down(t.Context(), true))
		}
	}
	dir, err := os.MkdirTemp("", "egress-live-")
	w.must(err)
	w.lab, err = lab.Start(t.Context(), dir, firstHost, secondHost)
	w.must(err)
	providers := w.lab.ProvidersHead("empty", map[string]string{"empty": w.lab.Images.Empty})
	for i, name := range []string{faults.HostA, faults.HostB} {
		h := w.lab.Hosts[i]
		w.hosts[name] = h
		where := "network: " + h.Network
		if i > 0 {
			where = "bridge: " + h.Bridge
		}
		providers += fmt.Sprintf("  - {name: %s, address: %q, pool: %s, %s}\n", name, h.SSHAddress, h.PoolName, where)
		w.hands[name] = kvm2.Backends(config.SSHCredentials{PrivateKeyFile: h.KeyFile, KnownHostsFile: h.KnownHostsFile})(
			config.Host{Name: name, Address: h.SSHAddress, User: h.User, Socket: h.Socket, Pool: h.PoolName})
	}
	w.must(w.lab.WriteProviders(providers))
	w.life = life{Kubeconfig: w.lab.Kubeconfig, Providers: w.lab.Providers, AgentDir: filepath.Join(w.lab.Root, "bin"), Collector: collector.Off}
	w.start()
	w.settleIn()
	return w
}

func poolOf(h *kvmhost.Host) string { return filepath.Join(h.Dir, "lib", "images") }

// settleIn makes the bystander and plants the decoys.
func (w *world) settleIn() {
	w.t.Helper()
	var identity corev1.ConfigMap
	w.must(w.lab.Client.Get(w.t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigMapName}, &identity))
	var err error
	w.names, err = libvirt.NewNames(identity.Data[cluster.ConfigMapKey])
	w.must(err)
	bystander := w.create("bystander", faults.HostB)
	w.life.Cluster, w.life.Bystander = w.names.Cluster(), bystander
	w.Settle(func() error { return w.instance(bystander, faults.HostB, func(libvirt.Mark) bool { return true }) })
	for host := range w.hosts {
		w.must(w.decoys().Plant(ground{w, host}))
		w.lookAgain(host)
		for o, line := range w.dump(host) {
			if !w.isOurs(o) || strings.Contains(o, w.names.Domain(bystander)) {
				w.foreign[host+" "+o] = line
			}
		}
	}
	w.restart(collector.Off) // one that knows what things are called
}

func (w *world) decoys() faults.Decoys {
	return faults.Decoys{
		Names: w.names, Entry: lab.Entry, Pool: w.hosts[faults.HostA].PoolName, Image: "file://" + w.lab.Images.Empty, UID: w.life.Bystander,
	}
}

// isOurs says of an object whether it has a name that the operator gives: decoys with such names belong to another entry, or have more to them.
func (w *world) isOurs(object string) bool {
	_, name, _ := strings.Cut(object, " ")
	return w.life.class(name) != strings.ReplaceAll(name, "/", "-") && !strings.Contains(w.markOf(name), "kvm2-other")
}

// markOf is the mark of the instance that an object belongs to, on any host; empty where there is none.
func (w *world) markOf(name string) string {
	domain := strings.TrimSuffix(strings.TrimSuffix(name, ".qcow2"), ".seed.iso")
	for _, hand := range w.hands {
		if text, err := hand.Metadata(w.t.Context(), domain, libvirt.MarkNamespace); err == nil {
			return text
		}
	}
	return ""
}

// close takes everything down.
func (w *world) close() error {
	if w == nil || w.lab == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	if w.operator != nil {
		errs = append(errs, w.operator.fire())
	}
	for _, hand := range w.hands {
		hand.Close()
	}
	errs = append(errs, w.lab.Close())
	for _, h := range w.hosts {
		errs = append(errs, h.Down(ctx, true))
	}
	return errors.Join(append(errs, os.RemoveAll(w.lab.Dir))...)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start starts another operator, and returns once it has looked at both hosts.
func (w *world) start() {
	w.t.Helper()
	var err error
	w.operator, err = hire(w.life)
	w.must(err)
	w.must(lab.Until(w.t.Context(), startTime, "the operator to have looked at the hosts", func(ctx context.Context) (bool, error) {
		a, err := w.operator.tell(ctx, order{})
		looked := func(host string) bool {
			return slices.ContainsFunc(a.Steps, func(s faults.Step) bool { return strings.HasPrefix(string(s), host+".DomainCapabilities") })
		}
		return (w.away || w.poolMoved || looked(faults.HostA)) && looked(faults.HostB), err
	}))
	if w.armed && !w.fired {
		w.arm(w.fault)
	}
}

// restart replaces the operator by one whose collector is as said. What an entry lost before does not count.
func (w *world) restart(mode collector.Mode) {
	w.t.Helper()
	w.must(w.operator.fire())
	w.must(w.lab.Client.DeleteAllOf(w.t.Context(), &v1alpha1.ProviderHealth{}))
	w.life.Collector = mode
	w.start()
}

// arm has the operator make a fault from now on.
func (w *world) arm(f faults.Fault) {
	w.t.Helper()
	w.fault, w.armed, w.fired, w.reacted = f, true, false, false
	_, err := w.operator.tell(w.t.Context(), order{Arm: true, Fault: f})
	w.must(err)
}

// disarm has the operator make no fault any more; one that dies of it at this very moment is replaced.
func (w *world) disarm() {
	w.t.Helper()
	if w.armed && !w.fired && w.fault != (faults.Fault{}) {
		if _, err := w.operator.tell(w.t.Context(), order{Arm: true}); err != nil {
			w.fired = w.operator.died()
			w.turn()
		}
	}
	w.armed, w.onFault = false, nil
}

// turn replaces an operator that was killed, and does what people do.
func (w *world) turn() {
	w.t.Helper()
	dead := w.operator.dead()
	if w.armed && !w.fired {
		w.fired = w.operator.fired()
	}
	if dead && (!w.fired || !w.fault.Kind.Kills()) {
		text := w.operator.Output()
		w.t.Fatalf("the operator ended: %s", text[max(0, len(text)-6000):])
	}
	if w.fired && w.onFault != nil && !w.reacted {
		w.reacted = true
		w.onFault()
	}
	if dead {
		w.must(w.operator.fire())
		w.start()
	}
	w.mendPool()
}

// Settle goes on until reached is nil.
func (w *world) Settle(reached func() error) {
	w.t.Helper()
	w.must(w.converge(reached))
}

func (w *world) converge(reached func() error) error {
	w.t.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(convergeTime); ; <-tick.C {
		w.turn()
		err := reached()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", convergeTime, err)
		}
	}
}

// rest lets the operator go on for a while.
func (w *world) rest(d time.Duration) {
	w.t.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for until := time.Now().Add(d); time.Now().Before(until); <-tick.C {
		w.turn()
	}
}

// create makes a Proxy, and returns its UID.
func (w *world) create(name, pin string) string {
	w.t.Helper()
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.ProxySpec{Provider: lab.Entry}}
	if pin != "" {
		p.Spec.Placement = &v1alpha1.Placement{Host: pin}
	}
	w.must(w.lab.Client.Create(w.t.Context(), p))
	return string(p.UID)
}

// proxy is the subject; nil where there is none.
func (w *world) proxy() *v1alpha1.Proxy {
	w.t.Helper()
	var p v1alpha1.Proxy
	err := w.lab.Client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: w.subject}, &p)
	w.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &p
}

// dump is all that a host holds, by kind and name.
func (w *world) dump(host string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	domains, err := w.hands[host].Domains(w.t.Context())
	w.must(err)
	for _, d := range domains {
		text, err := w.hands[host].DomainXML(w.t.Context(), d.Name)
		if libvirt.IsCode(err, libvirt.CodeNoDomain) {
			continue
		}
		w.must(err)
		all["domain "+d.Name] = fmt.Sprintf("state %d/%d persistent %t run %d %s", d.State, d.Reason, d.Persistent, d.Run, text)
	}
	files, err := os.ReadDir(poolOf(w.hosts[host]))
	w.must(err)
	for _, f := range files {
		line, err := fileLine(filepath.Join(poolOf(w.hosts[host]), f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		w.must(err)
		all["volume "+f.Name()] = line
	}
	return all
}

// own are the objects on a host that are not foreign.
func (w *world) own(host string) (all []string) {
	w.t.Helper()
	for _, o := range slices.Sorted(maps.Keys(w.dump(host))) {
		if _, foreign := w.foreign[host+" "+o]; !foreign {
			all = append(all, o)
		}
	}
	return all
}

// touched are the foreign objects that are not what they were.
func (w *world) touched() (all []string) {
	w.t.Helper()
	for host := range w.hosts {
		now := w.dump(host)
		for o, was := range w.foreign {
			if name, ok := strings.CutPrefix(o, host+" "); ok && now[name] != was {
				all = append(all, fmt.Sprintf("%s\n  was %s\n  is  %s", o, was, now[name]))
			}
		}
	}
	return all
}
