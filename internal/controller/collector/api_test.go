// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestMain(m *testing.M) {
	code := kubeapi.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// apiClient reads and writes past every cache.
func apiClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	var c client.Client
	if err == nil {
		c, err = client.New(kubeapi.Shared(t).Config, client.Options{Scheme: scheme})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pages counts the pages of a list, and fails the failing-th.
type pages struct {
	client.Client
	count   atomic.Int64
	failing int64
}

func (p *pages) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if p.count.Add(1) == p.failing {
		return errors.New("the API server is away")
	}
	return p.Client.List(ctx, list, append(options, client.Limit(2))...)
}

func TestReadProxies(t *testing.T) {
	c := apiClient(t)
	want := map[string]bool{}
	for range 2 {
		namespace := kubeapi.Shared(t).Namespace(t)
		for n := range 3 {
			p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("p%d", n)}, Spec: v1alpha1.ProxySpec{Provider: "home"}}
			if err := c.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			want[string(p.UID)] = true
		}
	}
	counted := &pages{Client: c}
	all, err := ReadProxies(counted)(t.Context())
	if err != nil || all.Len() != len(want) || counted.count.Load() < 3 {
		t.Errorf("%d Proxies in %d pages, %v; want %d", all.Len(), counted.count.Load(), err, len(want))
	}
	for uid := range want {
		if !all.Has(uid) {
			t.Errorf("%s is missing", uid)
		}
	}
	t.Run("a list that ends in the middle is an error", func(t *testing.T) {
		if all, err := ReadProxies(&pages{Client: c, failing: 2})(t.Context()); err == nil || all.Len() != 0 {
			t.Errorf("%d Proxies, %v", all.Len(), err)
		}
	})
}

// tally is an Observer.
type tally struct {
	collected, vanished int
	stopped             bool
}

func (o *tally) Collected(_, _, _ string, _ bool)   { o.collected++ }
func (o *tally) Kept(_, _, _ string)                {}
func (o *tally) Failed(_, _ string)                 {}
func (o *tally) Seen(_ string, _ int, stopped bool) { o.stopped = stopped }
func (o *tally) Vanished(_, _ string)               { o.vanished++ }
func eventsOf(f *events.FakeRecorder) (all []string) {
	for {
		select {
		case e := <-f.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// deleteProxies deletes what other tests have left.
func deleteProxies(t *testing.T, c client.Client) {
	t.Helper()
	var all v1alpha1.ProxyList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), &all.Items[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// The brake with a real API server: its condition, its token, the approval, and the events.
func TestTheBrakeAtTheAPI(t *testing.T) {
	c := apiClient(t)
	h := &hoard{hosts: []provider.HostState{readyHost("h1")}, left: map[string][]provider.Leftover{}}
	for n := range 3 {
		h.left["h1"] = append(h.left["h1"], instanceOf(uidOf(n)))
	}
	health := &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Name: "brake-home"}}
	recorder := events.NewFakeRecorder(100)
	now, observed := time.Now(), &tally{}
	collector := &Collector{
		Providers: func() map[string]provider.Provider { return map[string]provider.Provider{"brake-home": h} }, Proxies: ReadProxies(c),
		Ledger: HealthLedger{Live: c, Writer: c, Now: time.Now}, Mode: On, Grace: time.Hour, Wake: func(string, string) {}, Now: func() time.Time { return now },
		Report: EventReporter{Client: c, Events: recorder, Observer: observed, Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler),
	}
	sweep := func(d time.Duration) *v1alpha1.ProviderHealth {
		t.Helper()
		now = now.Add(d)
		collector.Sweep(t.Context())
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(health), health); err != nil {
			t.Fatal(err)
		}
		return health
	}
	if err := c.Create(t.Context(), health); err != nil {
		t.Fatal(err)
	}
	deleteProxies(t, c)
	t.Run("X18: an API that answers with nothing stops the collector, with a condition", func(t *testing.T) {
		sweep(0)
		now := sweep(time.Hour)
		stopped := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionCollectorStopped)
		if stopped == nil || stopped.Status != metav1.ConditionTrue || stopped.Reason != v1alpha1.ReasonNoProxies || !strings.Contains(stopped.Message, now.Status.Collector.Stopped.Token) {
			t.Fatalf("%+v", now.Status)
		}
		if len(h.asked) != 0 || !observed.stopped {
			t.Errorf("asked for %+v", h.asked)
		}
		if said := eventsOf(recorder); len(said) != 1 || !strings.Contains(said[0], "Warning NoProxies") {
			t.Errorf("%q", said)
		}
	})
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: kubeapi.Shared(t).Namespace(t), Name: "p"}, Spec: v1alpha1.ProxySpec{Provider: "home"}}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Run("X18: it stays stopped when there are Proxies again, and of others", func(t *testing.T) {
		if now := sweep(time.Minute); now.Status.Collector.Stopped == nil || len(h.asked) != 0 {
			t.Errorf("%+v", now.Status.Collector)
		}
	})
	t.Run("X18: the annotation approves, and an event says what went", func(t *testing.T) {
		eventsOf(recorder)
		next := health.DeepCopy()
		next.Annotations = map[string]string{v1alpha1.AnnotationApproveCollection: health.Status.Collector.Stopped.Token}
		if err := c.Patch(t.Context(), next, client.MergeFrom(health)); err != nil {
			t.Fatal(err)
		}
		now := sweep(time.Minute)
		if meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionCollectorStopped) != nil || now.Status.Collector != nil {
			t.Errorf("%+v", now.Status)
		}
		if said := eventsOf(recorder); len(said) != 4 || !strings.Contains(said[0], v1alpha1.ReasonCollectorResumed) || !strings.Contains(said[3], v1alpha1.ReasonCollected) || observed.collected != 3 {
			t.Errorf("%q", said)
		}
	})
	t.Run("an instance that vanished is told at its Proxy", func(t *testing.T) {
		next := p.DeepCopy()
		next.Status.Host = "h1"
		next.Spec.Provider = "home"
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunning})
		if err := c.Status().Patch(t.Context(), next, client.MergeFrom(p)); err != nil {
			t.Fatal(err)
		}
		var woken string
		collector.Wake = func(_, uid string) { woken = uid }
		collector.Providers = func() map[string]provider.Provider { return map[string]provider.Provider{"home": h} }
		collector.Sweep(t.Context())
		if said := eventsOf(recorder); woken != string(p.UID) || observed.vanished != 1 || len(said) != 1 || !strings.Contains(said[0], v1alpha1.ReasonInstanceVanished) {
			t.Errorf("woken %q, said %q", woken, said)
		}
	})
}

// What a ProviderHealth's own controller writes at the same time is not lost, and neither is what the collector writes.
func TestSavingBesideAnotherWriter(t *testing.T) {
	c := apiClient(t)
	health := &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Name: "two-writers"}}
	if err := c.Create(t.Context(), health); err != nil {
		t.Fatal(err)
	}
	read := &interfering{Client: c, t: t, before: func() {
		next := health.DeepCopy()
		next.Status.ReadyHosts = "1/2"
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllHostsReady"})
		if err := c.Status().Patch(t.Context(), next, client.MergeFrom(health)); err != nil {
			t.Fatal(err)
		}
	}}
	ledger := HealthLedger{Live: read, Writer: c, Now: time.Now}
	status := v1alpha1.CollectorStatus{Stopped: &v1alpha1.CollectorStop{Since: metav1.NewTime(time.Now().Truncate(time.Second)), Reason: v1alpha1.ReasonNoProxies, Token: "t", Instances: 1}}
	if err := ledger.Save(t.Context(), "two-writers", status); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(health), health); err != nil {
		t.Fatal(err)
	}
	if health.Status.ReadyHosts != "1/2" || len(health.Status.Conditions) != 2 || health.Status.Collector == nil {
		t.Errorf("%+v", health.Status)
	}
	if _, err := ledger.Load(t.Context(), "nonesuch"); !errors.Is(err, ErrNoRecord) {
		t.Error(err)
	}
}

// interfering has somebody else write between a read and the write that follows.
type interfering struct {
	client.Client
	t      *testing.T
	before func()
}

func (i *interfering) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := i.Client.Get(ctx, key, o, options...)
	if i.before != nil {
		before := i.before
		i.before = nil
		before()
	}
	return err
}
