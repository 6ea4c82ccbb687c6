// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package collect proves on a real host what becomes of instances without a Proxy, and of Proxies whose host or entry is away.
package collect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// collectHost is a host of these tests' own.
const collectHost = 50

const (
	namespace = "default"
	// grace is the shortest that an operator takes.
	grace = time.Minute
	// metricsAddress serves the operator's figures.
	metricsAddress = "127.0.0.1:29050"
)

// Deadlines, from the steps that they bound: a fetch of a small image and the agent on a busy machine; a grace period, a sweep before and one after it.
const (
	madeWithin      = 3 * time.Minute
	deletedWithin   = 2 * time.Minute
	collectedWithin = 2*grace + time.Minute
	eventWithin     = time.Minute
	cleanupTime     = time.Minute
)

var shared struct {
	once sync.Once
	dir  string
	lab  *lab.Lab
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func closeShared() error {
	if shared.lab == nil {
		return os.RemoveAll(shared.dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	err := shared.lab.Close()
	if wipeErr := lab.Wipe(ctx, shared.lab.Hosts[0]); err == nil {
		err = wipeErr
	}
	if removeErr := os.RemoveAll(shared.dir); err == nil {
		err = removeErr
	}
	return err
}

// theLab is the installation that these tests share, with an empty API and host, and the operator running.
func theLab(t *testing.T) *lab.Lab {
	t.Helper()
	shared.once.Do(func() { shared.err = startShared(t.Context()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	l := shared.lab
	t.Cleanup(func() {
		if t.Failed() && l.Operator != nil {
			text := l.Operator.Output()
			t.Logf("the operator's log:\n%s", text[max(0, len(text)-6000):])
		}
		clean(t, l)
	})
	start(t, l)
	return l
}

func startShared(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "egress-live-"); err != nil {
		return err
	}
	if shared.lab, err = lab.Start(ctx, shared.dir, collectHost); err != nil {
		return err
	}
	if err := lab.Wipe(ctx, shared.lab.Hosts[0]); err != nil { // of a run that was killed
		return err
	}
	return shared.lab.WriteProviders(withEFI(shared.lab.ProvidersYAML()))
}

// withEFI has one more image, whose guests have NVRAM.
func withEFI(providers string) string {
	_, rest, _ := strings.Cut(providers, `    empty: {url: "`)
	url, _, _ := strings.Cut(rest, `"`)
	return strings.Replace(providers, "  hosts:\n", fmt.Sprintf("    efi: {url: %q, firmware: efi}\n  hosts:\n", url), 1)
}

// start starts the operator where it does not run.
func start(t *testing.T, l *lab.Lab, flags ...string) {
	t.Helper()
	if l.Operator != nil {
		return
	}
	args := append(l.OperatorArgs(), "--collector-grace", grace.String(), "--metrics-bind-address", metricsAddress)
	if err := l.StartOperatorAs(exec.Command(l.OperatorBinary(), append(args, flags...)...)); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, l *lab.Lab) {
	t.Helper()
	if l.Operator == nil {
		return
	}
	if err := l.StopOperator(); err != nil {
		t.Fatal(err)
	}
}

// clean removes what a test has left: Proxies without their finalizers, ProviderHealths, and all that bears our prefix.
func clean(t *testing.T, l *lab.Lab) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
	defer cancel()
	if l.Operator != nil {
		if err := l.StopOperator(); err != nil {
			t.Error(err)
		}
	}
	var all v1alpha1.ProxyList
	if err := l.Client.List(ctx, &all); err != nil {
		t.Error(err)
	}
	for i := range all.Items {
		if err := orphan(ctx, l, &all.Items[i]); err != nil {
			t.Error(err)
		}
	}
	if err := l.Client.DeleteAllOf(ctx, &v1alpha1.ProviderHealth{}); err != nil {
		t.Error(err)
	}
	if err := lab.Wipe(ctx, l.Hosts[0]); err != nil {
		t.Error(err)
	}
}

// orphan removes a Proxy and its finalizer, past every operator.
func orphan(ctx context.Context, l *lab.Lab, p *v1alpha1.Proxy) error {
	stored := p.DeepCopy()
	p.Finalizers = nil
	if err := l.Client.Patch(ctx, p, client.MergeFrom(stored)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(l.Client.Delete(ctx, p))
}

// create makes Proxies whose guests halt at once, and waits until their instances run.
func create(t *testing.T, l *lab.Lab, image string, change func(*v1alpha1.ProxySpec), names ...string) []*v1alpha1.Proxy {
	t.Helper()
	made := make([]*v1alpha1.Proxy, 0, len(names))
	for _, name := range names {
		p := &v1alpha1.Proxy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.ProxySpec{Provider: lab.Entry, Placement: &v1alpha1.Placement{Image: &v1alpha1.Image{Name: image}}},
		}
		if change != nil {
			change(&p.Spec)
		}
		if err := l.Client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		made = append(made, await(t, l, name, madeWithin, "to run", func(p *v1alpha1.Proxy) bool { return p.Status.ProviderID != "" }))
	}
	return made
}

// await waits until a Proxy is as wanted, and returns it.
func await(t *testing.T, l *lab.Lab, name string, within time.Duration, what string, wanted func(*v1alpha1.Proxy) bool) *v1alpha1.Proxy {
	t.Helper()
	p := &v1alpha1.Proxy{}
	err := lab.Until(t.Context(), within, fmt.Sprintf("Proxy %s %s", name, what), func(ctx context.Context) (bool, error) {
		if err := l.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
			return false, err
		}
		return wanted(p), nil
	})
	if err != nil {
		t.Fatalf("%v; its conditions: %+v", err, p.Status.Conditions)
	}
	return p
}

// deleteFailed waits until a Proxy says why it cannot go, and returns the message.
func deleteFailed(t *testing.T, l *lab.Lab, name, part string) string {
	t.Helper()
	var message string
	p := await(t, l, name, deletedWithin, "to say why it stays: "+part, func(p *v1alpha1.Proxy) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
		if c == nil || c.Reason != v1alpha1.ReasonDeleteFailed || !strings.Contains(c.Message, part) {
			return false
		}
		message = c.Message
		return true
	})
	if !slices.Contains(p.Finalizers, v1alpha1.Finalizer) {
		t.Errorf("Proxy %s has lost its finalizer", name)
	}
	return message
}

func remove(t *testing.T, l *lab.Lab, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := l.Client.Delete(t.Context(), &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitGone(t *testing.T, l *lab.Lab, names ...string) {
	t.Helper()
	for _, name := range names {
		p := &v1alpha1.Proxy{}
		err := lab.Until(t.Context(), deletedWithin, "Proxy "+name+" to be gone", func(ctx context.Context) (bool, error) {
			err := l.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Fatalf("%v; its conditions: %+v", err, p.Status.Conditions)
		}
	}
}

func annotate(t *testing.T, l *lab.Lab, args ...string) {
	t.Helper()
	if _, err := l.Kubectl(t.Context(), "", append([]string{"annotate", "--overwrite"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// health of an entry, as soon as it is so.
func health(t *testing.T, l *lab.Lab, within time.Duration, what string, is func(*v1alpha1.ProviderHealth) bool) *v1alpha1.ProviderHealth {
	t.Helper()
	h := &v1alpha1.ProviderHealth{}
	err := lab.Until(t.Context(), within, "the ProviderHealth "+what, func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKey{Name: lab.Entry}, h)
		return err == nil && is(h), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%v; it is %+v", err, h.Status)
	}
	return h
}

func stopped(h *v1alpha1.ProviderHealth) *metav1.Condition {
	return meta.FindStatusCondition(h.Status.Conditions, v1alpha1.ConditionCollectorStopped)
}

// event waits for an event of that reason whose note has a part.
func event(t *testing.T, l *lab.Lab, within time.Duration, reason, part string) {
	t.Helper()
	err := lab.Until(t.Context(), within, "an event "+reason+" about "+part, func(ctx context.Context) (bool, error) {
		var all corev1.EventList
		err := l.Client.List(ctx, &all)
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, part) }), err
	})
	if err != nil {
		t.Error(err)
	}
}

// hold is what the host holds.
func hold(t *testing.T, l *lab.Lab) lab.Holdings {
	t.Helper()
	held, err := lab.Hold(t.Context(), l.Hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// awaitHost waits until the host holds what it should. It does not ask often: that costs more than what it waits for.
func awaitHost(t *testing.T, l *lab.Lab, within time.Duration, what string, is func(lab.Holdings) bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for until := time.Now().Add(within); ; <-tick.C {
		held := hold(t, l)
		if is(held) {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("waited %s in vain for %s; the host holds %+v", within, what, held)
		}
	}
}

// namesOf are the cluster's names on its hosts.
func namesOf(t *testing.T, l *lab.Lab) libvirt.Names {
	t.Helper()
	var identity corev1.ConfigMap
	if err := l.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigMapName}, &identity); err != nil {
		t.Fatal(err)
	}
	names, err := libvirt.NewNames(identity.Data[cluster.ConfigMapKey])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func virsh(t *testing.T, h *kvmhost.Host, args ...string) string {
	t.Helper()
	out, err := h.Virsh(t.Context(), args...)
	if err != nil {
		t.Fatalf("virsh %q: %v: %s", args, err, out)
	}
	return out
}

func runs(t *testing.T, h *kvmhost.Host, domain string) bool {
	t.Helper()
	out, err := h.Virsh(t.Context(), "domstate", domain)
	return err == nil && strings.TrimSpace(out) == "running"
}
