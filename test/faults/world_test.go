// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

const (
	clusterID = "0123456789ab"
	entryName = "kvm2-home"
	namespace = "team-a"
	// hostA is where a new Proxy goes, for hostB has the bystander.
	hostA, hostB = faults.HostA, faults.HostB
	subjectUID   = "11111111-2222-4333-8444-555555555555"
	bystanderUID = "99999999-2222-4333-8444-555555555555"
)

// Libvirt's numbers of what happens to guests.
const (
	stateRunning, statePaused, stateShutoff, stateCrashed = 1, 3, 5, 6
	reasonIOError                                         = 5
)

// world is two hosts with things of other people's, an API server, and one operator after the other.
type world struct {
	t        *testing.T
	injector *faults.Injector
	names    libvirt.Names
	hosts    map[string]*libvirttest.Daemon
	api      client.WithWatch
	operator *operator
	// lead is how long the first of two Creates is ahead of the second.
	lead time.Duration
	// reacted: onFault was done.
	reacted bool
	// cached is what the operator's cache has of Proxies.
	cached map[client.ObjectKey]cachedProxy
	// foreign is all that is not the operator's, and the bystander's instance, as it was found: by host, kind and name.
	foreign map[string]string
	quirks
}

// quirks are how a world is that is not like others.
type quirks struct {
	// away hosts cannot be reached by anybody.
	away map[string]bool
	// noMemory hosts cannot start the subject.
	noMemory map[string]bool
	// twice makes each Create two at once, whose calls take their time, so that they go in between each other.
	twice bool
	// undefinable hosts refuse to define the subject's domain.
	undefinable bool
	// behind: the operator's cache of Proxies is behind by as much as cacheBehind, and the next operator begins with it.
	behind bool
	// onFault is what somebody does once the fault was made; nil for nothing.
	onFault func()
	// sweeping has the collector of the operator work.
	sweeping bool
	// fickle: once an operator was killed, the providers file has no new instance go to hostA, which is closed then.
	fickle, closed bool
	// relents: once an operator was killed, hostA has memory again.
	relents bool
	// retired: the providers file names no image any more, and the operator has another agent.
	retired bool
}

// emptyWorld has decoys on both hosts, and no operator yet.
func emptyWorld(t *testing.T) *world {
	t.Helper()
	names, err := libvirt.NewNames(clusterID)
	must(t, err)
	w := &world{t: t, names: names, hosts: map[string]*libvirttest.Daemon{}, cached: map[client.ObjectKey]cachedProxy{}, foreign: map[string]string{}}
	w.injector = &faults.Injector{Class: w.class}
	w.away, w.noMemory = map[string]bool{}, map[string]bool{}
	w.api = newAPI(&v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Name: entryName}})
	for _, host := range []string{hostA, hostB} {
		w.hosts[host] = libvirttest.New(libvirttest.Config{Hostname: host, Networks: []string{"egress"}})
		must(t, w.decoys().Plant(ground{w.hosts[host]}))
		w.keep(host, w.everything(host)...)
	}
	w.mannered()
	return w
}

// prepared is a world in which an operation can begin: the bystander is Ready on hostB.
func prepared(t *testing.T, prepare func(*world)) *world {
	t.Helper()
	w := emptyWorld(t)
	w.start()
	w.create("bystander", bystanderUID, func(p *v1alpha1.Proxy) { p.Spec.Placement = &v1alpha1.Placement{Host: hostB} })
	w.settle(func() error { return w.ready("bystander", hostB) })
	for _, object := range w.everything(hostB) {
		if w.ofBystander(object) {
			w.keep(hostB, object)
		}
	}
	if prepare != nil {
		prepare(w)
	}
	w.rest(checkEvery)
	w.end()
	return w
}

// copyOf a world that ended: everything is as it was, but for the operator, which is another one.
func copyOf(t *testing.T, old *world, at time.Time) *world {
	t.Helper()
	time.Sleep(time.Until(at))
	w := &world{t: t, names: old.names, hosts: map[string]*libvirttest.Daemon{}, cached: map[client.ObjectKey]cachedProxy{}, foreign: maps.Clone(old.foreign), quirks: old.quirks}
	w.injector = &faults.Injector{Class: w.class}
	w.away, w.noMemory = maps.Clone(old.away), maps.Clone(old.noMemory)
	for host, d := range old.hosts {
		w.hosts[host] = d.Clone()
	}
	w.mannered()
	w.api = newAPI(old.objects()...)
	w.start()
	for w.operator.busy() {
		w.turn()
	}
	return w
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err) // both are compiled in
	}
	return s
}()

func newAPI(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Proxy{}, &v1alpha1.ProviderHealth{}).WithObjects(objects...).Build()
}

// objects of the API server.
func (w *world) objects() (all []client.Object) {
	w.t.Helper()
	var proxies v1alpha1.ProxyList
	var secrets corev1.SecretList
	var healths v1alpha1.ProviderHealthList
	for _, list := range []client.ObjectList{&proxies, &secrets, &healths} {
		must(w.t, w.api.List(context.Background(), list))
	}
	for i := range proxies.Items {
		all = append(all, &proxies.Items[i])
	}
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	for i := range healths.Items {
		all = append(all, &healths.Items[i])
	}
	return all
}

// mannered has the hosts do what hosts do in this world.
func (w *world) mannered() {
	for host, d := range w.hosts {
		d.SetFaults(w.before(host), w.after(d))
	}
}

// end stops the operator: nothing runs on.
func (w *world) end() {
	w.operator.stop()
	synctest.Wait()
}

// callTakes is how long a call takes where calls take their time.
const callTakes = time.Millisecond

// leads are how many calls the first of two Creates is ahead, at most: more than a Create makes.
const leads = 40

// leadOf a case: each has another.
func leadOf(f faults.Fault) time.Duration {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(f.Step + faults.Step(f.Kind))) // never fails
	return time.Duration(sum.Sum32()%leads) * callTakes
}

// before is what a host does with a call.
func (w *world) before(host string) libvirttest.Fault {
	return func(_ context.Context, method, object string) error {
		if w.twice {
			time.Sleep(callTakes)
		}
		switch {
		case w.away[host]:
			return &libvirt.HostError{Reason: "Unreachable", Message: "host " + host + " does not answer"}
		case w.undefinable && method == "Define" && object == w.names.Domain(subjectUID):
			return &libvirt.DaemonError{Code: libvirt.CodeConfigUnsupported, Message: "unsupported configuration: CPU mode 'host-model' is not supported"}
		case w.noMemory[host] && method == "Start" && object == w.names.Domain(subjectUID):
			return &libvirt.DaemonError{
				Code:    libvirt.CodeInternal,
				Message: "internal error: process exited while connecting to monitor: cannot set up guest memory 'pc.ram': Cannot allocate memory",
			}
		}
		return nil
	}
}

// after a start the guest has an address.
func (w *world) after(d *libvirttest.Daemon) libvirttest.Fault {
	return func(_ context.Context, method, object string) error {
		if uid, ours := w.names.InstanceUID(object); ours && method == "Start" {
			last := byte(10)
			if uid == strings.ReplaceAll(bystanderUID, "-", "") {
				last = 11
			}
			d.SetAddresses(object, libvirt.SourceLease, []libvirt.Interface{{MAC: w.names.MAC(uid), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, last})}}}, nil)
		}
		return nil
	}
}

// object names one thing on a host, as the daemon's dump begins.
func objectOf(line string) string { return strings.Join(strings.SplitN(line, " ", 3)[:2], " ") }

func (w *world) dump(host string) map[string]string {
	all := map[string]string{}
	for _, line := range w.hosts[host].Dump() {
		all[objectOf(line)] = line
	}
	return all
}

// everything that a host holds.
func (w *world) everything(host string) []string { return slices.Sorted(maps.Keys(w.dump(host))) }

// keep has an object of a host compared at the end.
func (w *world) keep(host string, objects ...string) {
	now := w.dump(host)
	for _, o := range objects {
		w.foreign[host+" "+o] = now[o]
	}
}

// release ends that.
func (w *world) release(host string, objects ...string) {
	for _, o := range objects {
		delete(w.foreign, host+" "+o)
	}
}

// touched are the foreign objects that are not what they were.
func (w *world) touched() (all []string) {
	now := map[string]string{}
	for host := range w.hosts {
		for o, line := range w.dump(host) {
			now[host+" "+o] = line
		}
	}
	for _, o := range slices.Sorted(maps.Keys(w.foreign)) {
		if now[o] != w.foreign[o] {
			all = append(all, fmt.Sprintf("%s\n  was %s\n  is  %s", o, w.foreign[o], now[o]))
		}
	}
	return all
}

// state is all that a host holds.
func (w *world) state(host string) string { return strings.Join(w.hosts[host].Dump(), "\n") }

// own are the objects on a host that are not foreign.
func (w *world) own(host string) (all []string) {
	for _, o := range w.everything(host) {
		if _, foreign := w.foreign[host+" "+o]; !foreign {
			all = append(all, o)
		}
	}
	return all
}

// class names objects alike in every run.
func (w *world) class(object string) string {
	for uid, prefix := range map[string]string{subjectUID: "", bystanderUID: "bystander-"} {
		switch object {
		case w.names.Domain(uid):
			return prefix + "domain"
		case w.names.Overlay(uid):
			return prefix + "overlay"
		case w.names.Seed(uid):
			return prefix + "seed"
		}
	}
	for _, kind := range []string{"base", "agent"} {
		if strings.HasPrefix(object, libvirt.Prefix+"-"+clusterID+"-"+kind+"-"+entryName+"-") {
			if strings.Contains(object, ".img.") {
				return kind + "-marker"
			}
			return kind
		}
	}
	return strings.ReplaceAll(object, "/", "-")
}

// create makes a Proxy.
func (w *world) create(name, uid string, change func(*v1alpha1.Proxy)) {
	w.t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Generation: 1},
		Spec:       v1alpha1.ProxySpec{Provider: entryName, Port: 3128, Mode: v1alpha1.ModeRotating, DeletionPolicy: v1alpha1.DeletionDelete},
	}
	if change != nil {
		change(p)
	}
	must(w.t, w.api.Create(context.Background(), p))
	w.operator.wake(name)
}

// proxy reads one; nil where there is none.
func (w *world) proxy(name string) *v1alpha1.Proxy {
	w.t.Helper()
	var p v1alpha1.Proxy
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &p); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return &p
}

// update changes one as its user does.
func (w *world) update(name string, change func(*v1alpha1.Proxy)) {
	w.t.Helper()
	p := w.proxy(name)
	before := p.DeepCopy()
	change(p)
	must(w.t, w.api.Patch(context.Background(), p, client.MergeFrom(before)))
	w.operator.wake(name)
}

// remove deletes one as its user does.
func (w *world) remove(name string) {
	w.t.Helper()
	if p := w.proxy(name); p != nil {
		must(w.t, client.IgnoreNotFound(w.api.Delete(context.Background(), p)))
	}
	w.operator.wake(name)
}

// limit is how long, in the world's time, an operation may take to come to its end.
const limit = time.Hour

// settle goes on until reached is nil, and returns what is wrong where that never comes.
func (w *world) settle(reached func() error) {
	w.t.Helper()
	if err := w.converge(reached); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) converge(reached func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := reached()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		w.turn()
	}
}

// rest lets the operator go on for a while.
func (w *world) rest(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		w.turn()
	}
}

// person does what the operator's words ask people to do, some time later: a pool that was stopped is started. The operator starts the one that its own
// refresh stopped, but one that was killed at that very moment leaves it to people: nobody can tell it from a pool that somebody stopped.
func (w *world) person() {
	for _, h := range w.operator.provider.Hosts() {
		if strings.Contains(h.Message, "virsh pool-start default") {
			w.injector.Note("--- a person starts the pool of host %s", h.Name)
			w.hosts[h.Name].StartPool()
		}
	}
}

// turn lets the operator do what is due, waiting for it if need be, and replaces one that was killed.
func (w *world) turn() {
	w.operator.turn()
	synctest.Wait()
	w.person()
	dead := w.operator.life.Dead()
	if dead {
		w.operator.stop()
	}
	w.react()
	if dead {
		w.injector.Note("--- another operator starts")
		w.closed = w.fickle
		if w.relents {
			delete(w.noMemory, hostA)
		}
		w.start()
	}
}

// react has somebody do what the world's quirk says once the fault was made: where it killed the operator, before the next one starts.
func (w *world) react() {
	if w.onFault == nil || w.reacted || !w.injector.Fired() {
		return
	}
	w.reacted = true
	w.onFault()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
