// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
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

// told is a provider whose hosts are as the test says.
type told struct {
	provider.Provider
	mu     sync.Mutex
	states []provider.HostState
	pulls  map[string]error
	asked  map[string]int
}

func (p *told) Hosts() []provider.HostState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]provider.HostState(nil), p.states...)
}

func (p *told) PrePull(_ context.Context, host string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[host]++
	return p.pulls[host]
}

func (p *told) become(states ...provider.HostState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = states
}

func (p *told) pull(host string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulls[host] = err
}

func (p *told) asks(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[host]
}

type world struct {
	t      *testing.T
	client client.Client
	scheme *runtime.Scheme
	api    *kubeapi.API

	mu      sync.Mutex
	entries map[string]Entry

	// writes of statuses, and how often an entry was looked at.
	writes, looks atomic.Int64
}

// counted counts the writes of statuses.
type counted struct {
	client.Client
	writes *atomic.Int64
}

func (c counted) Status() client.SubResourceWriter {
	return countedStatus{c.Client.Status(), c.writes}
}

type countedStatus struct {
	client.SubResourceWriter
	writes *atomic.Int64
}

func (c countedStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	c.writes.Add(1)
	return c.SubResourceWriter.Patch(ctx, o, patch, options...)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, api: kubeapi.Shared(t), entries: map[string]Entry{}, scheme: runtime.NewScheme()}
	err := errors.Join(corev1.AddToScheme(w.scheme), v1alpha1.AddToScheme(w.scheme))
	if err == nil {
		w.client, err = client.New(w.api.Config, client.Options{Scheme: w.scheme})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) set(name string, e Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries[name] = e
}

func (w *world) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.entries, name)
}

// start starts a controller until stop, or the test's end.
func (w *world) start(poll time.Duration) (r *Reconciler, stop func()) {
	w.t.Helper()
	unchecked := true
	mgr, err := ctrl.NewManager(w.api.Config, ctrl.Options{
		Scheme: w.scheme, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: &unchecked},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r = &Reconciler{Client: counted{mgr.GetClient(), &w.writes}, Events: mgr.GetEventRecorder("test"), Poll: poll, Now: func() time.Time {
		w.looks.Add(1)
		return time.Now()
	}, Entries: func() map[string]Entry {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := map[string]Entry{}
		for name, e := range w.entries {
			all[name] = e
		}
		return all
	}}
	if err := r.SetupWithManager(mgr); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the controller ended with: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return r, stop
}

// wait for the ProviderHealth to be so; nil where there is none.
func (w *world) wait(name, what string, is func(*v1alpha1.ProviderHealth) bool) *v1alpha1.ProviderHealth {
	w.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(eventually)
	for {
		h := &v1alpha1.ProviderHealth{}
		err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, h)
		if apierrors.IsNotFound(err) {
			h, err = nil, nil
		}
		if err != nil {
			w.t.Fatal(err)
		}
		if is(h) {
			return h
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not %s: %+v", what, h)
		}
		<-ticker.C
	}
}

func readyIs(reason string) func(*v1alpha1.ProviderHealth) bool {
	return func(h *v1alpha1.ProviderHealth) bool {
		if h == nil {
			return false
		}
		c := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == reason
	}
}

func TestAnEntrysHealth(t *testing.T) {
	w := newWorld(t)
	p := &told{states: []provider.HostState{ready("a"), down("b", provider.HostUnknown)}, pulls: map[string]error{}, asked: map[string]int{}}
	w.set("home", Entry{Type: "kvm2", Provider: p})
	w.set("ending", Entry{Type: "kvm2"})
	orphan := &v1alpha1.ProviderHealth{}
	orphan.Name = "gone"
	if err := w.client.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	r, _ := w.start(time.Hour)
	w.wait("gone", "deleted", func(h *v1alpha1.ProviderHealth) bool { return h == nil })
	first := w.wait("home", "made", readyIs(v1alpha1.ReasonSomeHostsNotReady))
	if first.Status.Type != "kvm2" || first.Status.ReadyHosts != "1/2" || first.Status.Instances != 2 || len(first.Status.Hosts) != 2 || *first.Status.Hosts[0].PoolAvailableGiB != 100 {
		t.Errorf("%+v", first.Status)
	}
	t.Run("a revoked host key is shown at once", func(t *testing.T) {
		b := down("b", provider.HostUnauthorized)
		b.Message = "host b: the host's key is revoked in known_hosts, line 3"
		p.become(ready("a"), b)
		r.Wake("home", "host/b")
		w.wait("home", "unauthorized", func(h *v1alpha1.ProviderHealth) bool {
			return h != nil && h.Status.Hosts[1].Reason == provider.HostUnauthorized && strings.Contains(h.Status.Hosts[1].Message, "revoked")
		})
	})
	t.Run("nothing is written when nothing changed", func(t *testing.T) {
		writes, looks := w.writes.Load(), w.looks.Load()
		poll := time.NewTicker(time.Millisecond) // the queue merges what comes at once
		defer poll.Stop()
		for deadline := time.Now().Add(eventually); w.looks.Load() < looks+10 && time.Now().Before(deadline); <-poll.C {
			r.Wake("home", "")
		}
		if now := w.writes.Load(); now != writes {
			t.Errorf("%d writes", now-writes)
		}
		r.Wake("home", "8f7c1f6e-3c2b-4f3e-9d5e-000000000002") // a Proxy's: not about hosts
		p.become(ready("a"), ready("b"))
		r.Wake("home", "")
		w.wait("home", "all ready", readyIs(v1alpha1.ReasonAllHostsReady))
		if now := w.writes.Load(); now != writes+1 {
			t.Errorf("%d writes for one change", now-writes)
		}
	})
	t.Run("made anew when somebody deletes it", func(t *testing.T) {
		old := w.wait("home", "there", func(h *v1alpha1.ProviderHealth) bool { return h != nil })
		if err := w.client.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		w.wait("home", "made anew", func(h *v1alpha1.ProviderHealth) bool { return h != nil && h.UID != old.UID && len(h.Status.Hosts) == 2 })
	})
	t.Run("an entry whose provider is gone is left as it was", func(t *testing.T) {
		r.Wake("ending", "")
		w.wait("ending", "absent", func(h *v1alpha1.ProviderHealth) bool { return h == nil })
	})
	w.drop("home")
	r.Wake("home", "")
	w.wait("home", "deleted with its entry", func(h *v1alpha1.ProviderHealth) bool { return h == nil })
}

func TestHostsAreMadeToHoldImages(t *testing.T) {
	w := newWorld(t)
	moving := &provider.Error{Kind: provider.InProgress, Host: "a", Message: "10%"}
	p := &told{states: []provider.HostState{ready("a"), down("b", provider.HostTimeout)}, pulls: map[string]error{"a": moving}, asked: map[string]int{}}
	w.set("pulling", Entry{Type: "kvm2", Provider: p, PrePull: []string{"debian"}})
	t.Cleanup(func() { w.drop("pulling") })
	r, _ := w.start(time.Hour)
	held := func(reason string) func(*v1alpha1.ProviderHealth) bool {
		return func(h *v1alpha1.ProviderHealth) bool {
			if h == nil {
				return false
			}
			c := meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionImagesHeld)
			return c != nil && c.Reason == reason
		}
	}
	w.wait("pulling", "pulling", held(v1alpha1.ReasonPulling))
	p.pull("a", &provider.Error{Kind: provider.Capacity, Host: "a", Message: "no room"})
	r.Wake("pulling", "prepull/a")
	w.wait("pulling", "failed", held(v1alpha1.ReasonPullFailed))
	p.pull("a", nil)
	p.become(ready("a"), ready("b"))
	r.Wake("pulling", "prepull/a")
	w.wait("pulling", "held", held(v1alpha1.ReasonHeld))
	asked := p.asks("a")
	p.become(ready("a"), down("b", provider.HostDegraded))
	r.Wake("pulling", "")
	w.wait("pulling", "seen again", readyIs(v1alpha1.ReasonSomeHostsNotReady))
	if p.asks("a") != asked || p.asks("b") == 0 {
		t.Errorf("asked %d times, then %d", asked, p.asks("a"))
	}
}

func TestTheSchemaTakesNoNonsense(t *testing.T) {
	w := newWorld(t)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProviderHealth"))
	u.SetName("schema")
	if err := w.client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Delete(context.Background(), u) })
	host := func(key string, value any) map[string]any {
		h := map[string]any{"name": "a", "reason": "Ready", "lastChange": "2026-11-30T12:00:00Z"}
		h[key] = value
		return h
	}
	for says, hosts := range map[string][]any{
		"Unsupported value":          {host("reason", "Invented")},
		"may not be more than 1024":  {host("message", strings.Repeat("x", 1025))},
		"may not be more than 253":   {host("hostName", strings.Repeat("x", 254))},
		"Duplicate value":            {host("name", "a"), host("name", "a")},
		"should be at least 1 chars": {host("name", "")},
		"Invalid value":              {host("poolAvailableGiB", "much")},
	} {
		patch := u.DeepCopy()
		patch.Object["status"] = map[string]any{"hosts": hosts}
		if err := w.client.Status().Update(t.Context(), patch); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}
