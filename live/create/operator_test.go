// SPDX-License-Identifier: Apache-2.0

//go:build live

package create

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const (
	namespace = "default"
	// strictEntry takes no emulation, and has the host's own pool; the lab's entry has the roomy one.
	strictEntry = "kvm2-strict"
)

// operated is the whole installation, with the operator running, for as long as the test runs.
func operated(t *testing.T, images map[string]string, more func(entry string) string) *lab.Lab {
	t.Helper()
	h := theHost(t)
	dir, err := os.MkdirTemp("", "egress-live-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := lab.Start(t.Context(), dir, createHost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && l.Operator != nil {
			text := l.Operator.Output()
			t.Logf("the operator's log:\n%s", text[max(0, len(text)-6000):])
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	head := l.ProvidersHead("empty", images)
	_, entry, _ := strings.Cut(head, "entries:\n")
	host := lab.HostYAML(h, h.SSHAddress)
	roomyHost := strings.Replace(host, "pool: "+h.PoolName, "pool: "+roomyPool, 1)
	if err := l.WriteProviders(head + roomyHost + more(entry+host)); err != nil {
		t.Fatal(err)
	}
	if err := l.StartOperator(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOperator(t *testing.T) {
	_, _, empty := kvmhost.Images(t)
	h := kvmhost.Up(t, createHost)
	removeRoomyPool(t.Context(), h)
	if err := makeRoomyPool(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		removeRoomyPool(ctx, h)
	})
	l := operated(t, map[string]string{"empty": empty, "wide": wideImage(t, 3)}, func(entry string) string {
		return strings.NewReplacer(lab.Entry, strictEntry, "allowEmulation: true", "allowEmulation: false").Replace(entry)
	})
	t.Run("M5: a Proxy whose disk is too small says both sizes, has nothing made, and is repaired by a larger one", func(t *testing.T) {
		tooSmall(t, l)
	})
	t.Run("M7: where the host hides KVM the entry's ProviderHealth says so, and the Proxy the same", func(t *testing.T) { noKVM(t, l) })
	t.Run("M4: ProviderHealth has the room beyond the reserve, and when it was seen", func(t *testing.T) { roomInHealth(t, l) })
}

func tooSmall(t *testing.T, l *lab.Lab) {
	p := proxyOf(t, l, lab.Entry, "narrow", "wide")
	await(t, l, p, "to say what is wrong", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPermanent && contains(c.Message, "diskSizeGb is 1", "1073741824 bytes", "3221225472 bytes", "set diskSizeGb to 3 or more")
	})
	out, err := l.Hosts[0].Exec(t.Context(), "find", roomyDir, "-name", "*-vm-*")
	if err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("made all the same: %s, %v", out, err)
	}
	stored := p.DeepCopy()
	p.Spec.Placement.DiskSizeGb = 3
	if err := l.Client.Patch(t.Context(), p, client.MergeFrom(stored)); err != nil {
		t.Fatal(err)
	}
	await(t, l, p, "to run", runs)
	names := namesOf(t, l)
	out, err = l.Hosts[0].Virsh(t.Context(), "vol-info", "--bytes", names.Overlay(string(p.UID)), "--pool", roomyPool)
	if err != nil || !contains(out, fmt.Sprint(int64(3*gib))) {
		t.Errorf("its disk: %s, %v", out, err)
	}
}

func noKVM(t *testing.T, l *lab.Lab) {
	const lacks = "lacks KVM (load the module"
	p := proxyOf(t, l, strictEntry, "strict", "empty")
	h := health(t, l, strictEntry, "to say what its host lacks", func(h v1alpha1.HostHealth) bool {
		return h.Reason == provider.HostIncapable && contains(h.Message, lacks)
	})
	if meta.IsStatusConditionTrue(h.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the entry is ready: %+v", h.Status)
	}
	c := await(t, l, p, "to say the same", func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPermanent && contains(c.Message, lacks)
	})
	t.Logf("%s: %s", c.Reason, c.Message)
	held, err := lab.Hold(t.Context(), l.Hosts[0])
	if err != nil || len(held.Volumes) > 0 {
		t.Errorf("made all the same: %+v, %v", held, err)
	}
	q := proxyOf(t, l, lab.Entry, "emulated", "empty")
	await(t, l, q, "to run", runs)
	text, err := l.Hosts[0].Virsh(t.Context(), "dumpxml", namesOf(t, l).Domain(string(q.UID)))
	if err != nil || !strings.Contains(text, "<domain type='qemu'") {
		t.Errorf("%v: %s", err, text)
	}
}

func roomInHealth(t *testing.T, l *lab.Lab) {
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	h := health(t, l, lab.Entry, "to tell the room", func(h v1alpha1.HostHealth) bool { return h.PoolAvailableGiB != nil && h.PoolSeen != nil })
	// Of 5.5 GiB that hold next to nothing 1 is kept.
	if told := *h.Status.Hosts[0].PoolAvailableGiB; told != 4 {
		t.Errorf("%d GiB are told", told)
	}
	if seen := h.Status.Hosts[0].PoolSeen; seen.Before(&since) {
		t.Errorf("seen at %v", seen)
	}
}

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func runs(c metav1.Condition) bool {
	return c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonBooting
}

// proxyOf makes a Proxy of an entry, which goes at the end of the test.
func proxyOf(t *testing.T, l *lab.Lab, entry, name, image string) *v1alpha1.Proxy {
	t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ProxySpec{Provider: entry, Placement: &v1alpha1.Placement{Image: &v1alpha1.Image{Name: image}}},
	}
	if err := l.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deletedWithin)
		defer cancel()
		_ = l.Client.Delete(ctx, p) // it may be gone
		if err := lab.Until(ctx, deletedWithin, "Proxy "+name+" to be gone", func(ctx context.Context) (bool, error) {
			err := l.Client.Get(ctx, client.ObjectKeyFromObject(p), &v1alpha1.Proxy{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}); err != nil {
			t.Error(err)
		}
	})
	return p
}

// await waits until the condition Provisioned of a Proxy is as wanted, and returns it.
func await(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy, what string, wanted func(metav1.Condition) bool) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	err := lab.Until(t.Context(), madeWithin, "Proxy "+p.Name+" "+what, func(ctx context.Context) (bool, error) {
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return false, err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned); c != nil {
			found = *c
		}
		return wanted(found), nil
	})
	if err != nil {
		t.Fatalf("%v; it says %s: %s", err, found.Reason, found.Message)
	}
	return found
}

// health of an entry, as soon as its one host is so.
func health(t *testing.T, l *lab.Lab, entry, what string, is func(v1alpha1.HostHealth) bool) *v1alpha1.ProviderHealth {
	t.Helper()
	h := &v1alpha1.ProviderHealth{}
	err := lab.Until(t.Context(), seenWithin, "the ProviderHealth of "+entry+" "+what, func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKey{Name: entry}, h)
		return err == nil && len(h.Status.Hosts) == 1 && is(h.Status.Hosts[0]), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%v; it is %+v", err, h.Status)
	}
	return h
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
