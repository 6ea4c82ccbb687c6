// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe/probetest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := kubeapi.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// eventually is how long a test waits for what must come.
const eventually = 30 * time.Second

// testGuest hands credentials to the scripted provider's proxies.
type testGuest struct {
	mu    sync.Mutex
	by    *scripted
	err   error
	calls int
}

func (g *testGuest) Ensure(_ context.Context, agent netip.AddrPort, _ provider.Secret, c provider.Credentials, overlap time.Duration) (GuestState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.err != nil {
		return GuestState{}, g.err
	}
	g.by.mu.Lock()
	defer g.by.mu.Unlock()
	for _, m := range g.by.instances {
		if m.proxy.Address == agent.String() {
			changed := !m.proxy.Accepts(c.Username, c.Password.Reveal())
			m.proxy.SetCredentials(c.Username, c.Password.Reveal())
			return GuestState{Version: "test", Changed: changed, Previous: overlap}, nil
		}
	}
	return GuestState{}, errors.New("nothing listens there")
}

func (g *testGuest) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// world is an operator with a scripted provider, in a namespace of its own.
type world struct {
	t         *testing.T
	client    client.Client
	namespace string
	provider  *scripted
	guest     *testGuest
	file      *config.File
	scheme    *runtime.Scheme
	api       *kubeapi.API
	// providers by entry; the scripted one in all of them unless a test has its own.
	providers map[string]provider.Provider
	// prober in place of real probes, where it is not nil.
	prober  Prober
	workers int
	now     func() time.Time
	// patience of the test's waits.
	patience time.Duration
	stop     func()
}

func testFile(reflector string, namespace string) *config.File {
	return &config.File{
		Version: 1, Reflectors: []config.Reflector{{URL: reflector}},
		Probe: config.Probe{Interval: config.Duration(time.Second), Timeout: config.Duration(time.Second), FailureThreshold: 2, SuccessThreshold: 1},
		Entries: []config.Entry{
			{
				Name: "home", Type: config.TypeKVM2, Hosts: []config.Host{{Name: "h1"}, {Name: "h2"}}, DefaultImage: "tiny",
				Images: map[string]config.Image{"tiny": {}, "large": {}}, Defaults: config.Sizes{VCPUs: 1, MemoryMiB: 512, DiskSizeGb: 4},
				AllowURLImages: []string{"images.example"}, AllowUserData: []string{config.AllNamespaces},
			},
			{Name: "private", Type: config.TypeKVM2, AllowedNamespaces: []string{"team-a"}},
			{Name: "undefaulted", Type: config.TypeKVM2, Images: map[string]config.Image{"x": {}}, AllowedNamespaces: []string{namespace}, AllowUserData: []string{"team-b"}},
		},
	}
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// newWorld starts an operator, as change has it.
func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	t.Parallel()
	api := kubeapi.Shared(t)
	w := &world{t: t, api: api, namespace: api.Namespace(t), provider: newScripted(t, "h1", "h2"), scheme: testScheme(t), workers: 4, now: time.Now, patience: eventually}
	w.guest = &testGuest{by: w.provider}
	w.file = testFile(probetest.NewReflector(t).URL, w.namespace)
	w.providers = map[string]provider.Provider{"home": w.provider, "private": w.provider, "undefaulted": w.provider}
	for _, c := range change {
		c(w)
	}
	var err error
	if w.client, err = client.New(api.Config, client.Options{Scheme: w.scheme}); err != nil {
		t.Fatal(err)
	}
	w.start()
	return w
}

// start starts the operator; w.stop ends it, and so does the end of the test.
func (w *world) start() {
	w.t.Helper()
	options := CacheOptions()
	options.DefaultNamespaces = map[string]cache.Config{w.namespace: {}}
	unchecked := true
	mgr, err := ctrl.NewManager(w.api.Config, ctrl.Options{
		Scheme: w.scheme, Cache: options, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: &unchecked},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	identity, err := cluster.New("0123456789ab", make([]byte, 32))
	if err != nil {
		w.t.Fatal(err)
	}
	set := Set{File: w.file, Providers: w.providers}
	r := &Reconciler{
		Client: mortal{mgr.GetClient(), w.provider.death}, Live: mortalReader{mgr.GetAPIReader(), w.provider.death}, Identity: identity, Guest: w.guest, Events: mgr.GetEventRecorder("test"), Now: w.now,
		Pace:    Pace{Reconcile: 10 * time.Second, Slow: time.Second, Retry: 50 * time.Millisecond, RetryMax: 200 * time.Millisecond},
		Current: func() Set { return set },
	}
	scheduler := probe.NewScheduler(new(probe.Prober).Probe, 8, func(uid string) { r.Wake("", uid) })
	if r.Probes = w.prober; r.Probes == nil {
		r.Probes = scheduler
	}
	watch := func(ctx context.Context) error {
		return w.providers["home"].(provider.Watcher).Watch(ctx, func(uid string) { r.Wake("home", uid) })
	}
	for _, part := range []manager.RunnableFunc{scheduler.Start, watch} {
		if err := mgr.Add(part); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := r.SetupWithManager(ctx, mgr, w.workers); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the operator ended with: %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

// configure changes the providers file, and starts the operator anew with it.
func (w *world) configure(change func(*config.File)) {
	w.t.Helper()
	w.stop()
	change(w.file)
	w.start()
}

// proxy is a Proxy of entry home, as spec makes it.
func (w *world) proxy(name string, spec func(*v1alpha1.ProxySpec)) *v1alpha1.Proxy {
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: v1alpha1.ProxySpec{Provider: "home"},
	}
	if spec != nil {
		spec(&p.Spec)
	}
	return p
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// made creates a Proxy and waits until it is Ready.
func (w *world) made(name string, spec func(*v1alpha1.ProxySpec)) *v1alpha1.Proxy {
	w.t.Helper()
	p := w.proxy(name, spec)
	w.create(p)
	return w.wait(p, "Ready", ready)
}

// update changes the spec or the metadata of a Proxy.
func (w *world) update(p *v1alpha1.Proxy, change func(*v1alpha1.Proxy)) {
	w.t.Helper()
	stored := p.DeepCopy()
	change(p)
	if err := w.client.Patch(w.t.Context(), p, client.MergeFrom(stored)); err != nil {
		w.t.Fatal(err)
	}
}

// wait polls until the Proxy is as wanted, and returns it.
func (w *world) wait(p *v1alpha1.Proxy, what string, is func(*v1alpha1.Proxy) bool) *v1alpha1.Proxy {
	w.t.Helper()
	deadline := time.Now().Add(w.patience)
	var now v1alpha1.Proxy
	for time.Now().Before(deadline) {
		now = v1alpha1.Proxy{}
		if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
			w.t.Fatal(err)
		}
		if is(&now) {
			return &now
		}
		pause(w.t)
	}
	w.t.Fatalf("never: %s; the Proxy is %s", what, describe(&now))
	return nil
}

// holds polls for a while and fails where the Proxy ceases to be as wanted.
func (w *world) holds(p *v1alpha1.Proxy, what string, is func(*v1alpha1.Proxy) bool) {
	w.t.Helper()
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		var now v1alpha1.Proxy
		if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
			w.t.Fatal(err)
		}
		if !is(&now) {
			w.t.Fatalf("no longer: %s; the Proxy is %s", what, describe(&now))
		}
		pause(w.t)
	}
}

// poll until something is so.
func (w *world) poll(what string, is func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(w.patience)
	for !is() {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s", what)
		}
		pause(w.t)
	}
}

// waitGone polls until there is no such Proxy.
func (w *world) waitGone(p *v1alpha1.Proxy) {
	w.t.Helper()
	deadline := time.Now().Add(w.patience)
	var now v1alpha1.Proxy
	for time.Now().Before(deadline) {
		now = v1alpha1.Proxy{}
		if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
			if client.IgnoreNotFound(err) == nil {
				return
			}
			w.t.Fatal(err)
		}
		pause(w.t)
	}
	w.t.Fatalf("never gone; the Proxy is %s", describe(&now))
}

// pause between two looks at the API server.
func pause(t testing.TB) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
	}
}

func describe(p *v1alpha1.Proxy) string {
	s := fmt.Sprintf("host %q, endpoint %q, exits %v", p.Status.Host, p.Status.Endpoint, p.Status.ExitIPs)
	for _, c := range p.Status.Conditions {
		s += fmt.Sprintf("\n  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return s
}

func ready(p *v1alpha1.Proxy) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
}

// has a condition with that status and reason, for the present generation.
func has(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.Proxy) bool {
	return func(p *v1alpha1.Proxy) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == p.Generation
	}
}

// message of a condition.
func message(p *v1alpha1.Proxy, kind string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}
