// SPDX-License-Identifier: Apache-2.0

//go:build !race

package faults_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
)

const (
	// sweepEvery is how often the collector looks, and grace how long something has to look like a leftover: longer than a pass may take.
	sweepEvery = time.Minute
	grace      = 5 * time.Minute
	// checkEvery is how often a host is looked at: seldom, for each look is steps of every operation.
	checkEvery = 5 * time.Minute
	// errorDelay is when a pass whose API call failed is repeated.
	errorDelay = 200 * time.Millisecond
)

var pace = proxy.Pace{Reconcile: time.Minute, Slow: 5 * time.Minute, Retry: time.Second, RetryMax: time.Minute}

// operator is one process: the controller of Proxies, the collector and the provider.
type operator struct {
	world     *world
	life      *faults.Life
	provider  *libvirt.Provider
	proxies   *proxy.Reconciler
	collector *collector.Collector
	ctx       context.Context
	end       context.CancelFunc
	watching  sync.WaitGroup

	mu    sync.Mutex
	due   map[string]time.Time // by the name of the Proxy
	sweep time.Time
	woken chan struct{}
}

// start starts another operator.
func (w *world) start() {
	w.t.Helper()
	o := &operator{world: w, life: w.injector.NewLife(), due: map[string]time.Time{}, woken: make(chan struct{}, 1)}
	o.ctx, o.end = context.WithCancel(context.Background())
	file := w.file()
	var err error
	o.provider, err = libvirt.New(libvirt.Options{
		Cluster: clusterID, Entry: file.Entries[0], Reflectors: []string{"192.0.2.1:80"}, Agent: w.agent, CheckInterval: checkEvery,
		Backend: func(h config.Host) libvirt.Backend { return o.life.Backend(h.Name, w.hosts[h.Name].Backend()) },
	})
	must(w.t, err)
	synctest.Wait() // until each host was looked at
	identity, err := cluster.New(clusterID, make([]byte, 32))
	must(w.t, err)
	var made provider.Provider = o.provider
	if w.twice {
		made = doubled{o.provider, w}
	}
	set := proxy.Set{File: file, Providers: map[string]provider.Provider{entryName: made}}
	api := o.life.Client(w.api)
	o.proxies = &proxy.Reconciler{
		Client: w.cache(o.life, api), Live: api, Current: func() proxy.Set { return set }, Identity: identity, Probes: &healthy{known: map[string]bool{}},
		Guest: willing{}, Events: deaf{}, Now: time.Now, Pace: pace,
	}
	o.collector = &collector.Collector{
		Providers: func() map[string]provider.Provider { return set.Providers }, Proxies: collector.ReadProxies(api),
		Ledger: collector.HealthLedger{Live: api, Writer: api, Now: time.Now}, Mode: collector.On, Grace: grace, Report: quiet{},
		Wake: func(_, uid string) { o.notify(uid) }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	o.watching.Go(func() { _ = o.provider.Watch(o.ctx, o.notify) })
	w.operator = o
	for _, name := range []string{"bystander", "subject"} {
		o.wake(name)
	}
}

// stop ends the process. One that was killed reaches nothing any more.
func (o *operator) stop() {
	o.end()
	o.provider.Close()
	o.watching.Wait()
}

// wake has a Proxy looked at now.
func (o *operator) wake(name string) {
	o.mu.Lock()
	o.due[name] = time.Now()
	o.mu.Unlock()
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

func (o *operator) notify(uid string) {
	switch uid {
	case subjectUID:
		o.wake("subject")
	case bystanderUID:
		o.wake("bystander")
	case "":
		o.wake("subject")
		o.wake("bystander")
	}
}

// turn does what is due, or waits until something is.
func (o *operator) turn() {
	synctest.Wait()
	if name, ok := o.next(); ok {
		o.reconcile(name)
		return
	}
	if o.world.sweeping && !time.Now().Before(o.sweep) {
		o.sweep = time.Now().Add(sweepEvery)
		ctx, cancel := faults.Pass(o.ctx, pace.Reconcile)
		defer cancel()
		o.collector.Sweep(ctx)
		return
	}
	timer := time.NewTimer(o.idle())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.woken:
	}
}

// busy says whether something is due.
func (o *operator) busy() bool {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.due {
		if time.Until(at) < errorDelay {
			return true
		}
	}
	return false
}

// next is a Proxy that is due.
func (o *operator) next() (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range []string{"subject", "bystander"} {
		if at, ok := o.due[name]; ok && !at.After(time.Now()) {
			delete(o.due, name)
			return name, true
		}
	}
	return "", false
}

func (o *operator) idle() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	idle := checkEvery
	for _, at := range o.due {
		idle = min(idle, time.Until(at))
	}
	if o.world.sweeping {
		idle = min(idle, time.Until(o.sweep))
	}
	return max(idle, time.Millisecond)
}

func (o *operator) reconcile(name string) {
	ctx, cancel := faults.Pass(o.ctx, pace.Reconcile)
	defer cancel()
	result, err := o.proxies.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
	o.mu.Lock()
	defer o.mu.Unlock()
	var again time.Duration
	switch {
	case err != nil:
		o.world.injector.Note("pass of %s failed: %v", name, err)
		again = errorDelay
	case result.RequeueAfter > 0:
		again = result.RequeueAfter
	default:
		return
	}
	if at := time.Now().Add(again); o.due[name].IsZero() || at.Before(o.due[name]) {
		o.due[name] = at
	}
}

// file is the providers file in force.
func (w *world) file() *config.File {
	reserve := int64(2)
	entry := config.Entry{
		Name: entryName, Type: config.TypeKVM2, DefaultImage: "debian",
		Hosts: []config.Host{
			{Name: hostA, Address: "198.51.100.7", Pool: "default", Bridge: "br0"},
			{Name: hostB, Address: "198.51.100.8", Pool: "default", Network: "egress"},
		},
		Images:        map[string]config.Image{"debian": {URL: imageURL, Arch: "x86_64", Firmware: "bios"}},
		PrePull:       []string{"debian"},
		Defaults:      config.Sizes{VCPUs: 1, MemoryMiB: 128, DiskSizeGb: 1},
		MaxImageBytes: 1 << 30, PoolReserveGiB: &reserve,
	}
	if w.closed {
		entry.Hosts[0].Schedulable = new(bool)
	}
	if w.retired {
		entry.Images, entry.PrePull = nil, nil
	}
	probes := config.Probe{
		Interval: config.Duration(checkEvery), Timeout: config.Duration(time.Second), FailureThreshold: 3, SuccessThreshold: 1,
	}
	return &config.File{Version: 1, Reflectors: []config.Reflector{{URL: "http://192.0.2.1/"}}, Probe: probes, Entries: []config.Entry{entry}}
}

// agent of the operator; another one once it retired.
func (w *world) agent(arch string) (libvirt.AgentFile, error) {
	file, err := libvirttest.Agent(arch)
	if w.retired {
		sum := sha256.Sum256([]byte("another"))
		file.SHA256 = hex.EncodeToString(sum[:])
	}
	return file, err
}

// doubled makes two Creates at once of each.
type doubled struct {
	*libvirt.Provider
	world *world
}

func (d doubled) Create(ctx context.Context, spec provider.InstanceSpec) (provider.Instance, error) {
	var other sync.WaitGroup
	other.Go(func() { _, _ = d.Provider.Create(ctx, spec) }) // the other one's answer is as good
	defer other.Wait()
	if d.world.lead > 0 {
		time.Sleep(d.world.lead)
	}
	return d.Provider.Create(ctx, spec)
}

// healthy finds whatever it watches healthy.
type healthy struct {
	mu    sync.Mutex
	known map[string]bool
}

func (h *healthy) Watch(key string, _ probe.Target, _ probe.Policy, _ probe.Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[key] = true
}

func (h *healthy) Forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, key)
}

func (h *healthy) Health(key string) (probe.Health, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return probe.Health{
		Proven: true, Healthy: true, Reason: probe.Succeeded, Message: "requests go through", Last: probe.Succeeded,
		Exit: netip.MustParseAddr("203.0.113.7"),
	}, h.known[key]
}

// willing guests take what they are told.
type willing struct{}

func (willing) Ensure(context.Context, netip.AddrPort, provider.Secret, provider.Credentials, time.Duration) (proxy.GuestState, error) {
	return proxy.GuestState{Version: "0.0.1"}, nil
}

// deaf takes events.
type deaf struct{}

func (deaf) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// quiet takes the collector's reports.
type quiet struct{}

func (quiet) Collected(string, string, provider.Leftover, bool) {}
func (quiet) Kept(string, string, provider.Leftover, string)    {}
func (quiet) Failed(string, string, error)                      {}
func (quiet) Seen(string, int, bool)                            {}
func (quiet) Stopped(string, v1alpha1.CollectorStop)            {}
func (quiet) Resumed(string, string)                            {}
func (quiet) Vanished(string, string, collector.Proxy)          {}
