// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package state proves on a real host what the operator does about guests that pause, vanish, are killed, or whose reading fails.
package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// stateHost is a host of these tests' own.
const stateHost = 51

const (
	namespace = "default"
	// smallEntry makes instances in a pool that is soon full.
	smallEntry = "kvm2-small"
	smallPool  = "small"
	smallDir   = "/var/lib/libvirt/small"
	smallBytes = 1600 << 20
)

// Deadlines, from the steps that they bound: a fetch of a small image and the agent, and boots without KVM on a busy machine.
const (
	madeWithin    = 3 * time.Minute
	bootedWithin  = 6 * time.Minute
	deletedWithin = 2 * time.Minute
	cleanupTime   = time.Minute
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
	host := shared.lab.Hosts[0]
	if wipeErr := lab.Wipe(ctx, host); err == nil {
		err = wipeErr
	}
	removeSmallPool(ctx, host)
	if removeErr := os.RemoveAll(shared.dir); err == nil {
		err = removeErr
	}
	return err
}

// theLab is the installation that these tests share, with the operator running.
func theLab(t *testing.T) *lab.Lab {
	t.Helper()
	shared.once.Do(func() { shared.err = startShared(t.Context()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() && shared.lab.Operator != nil {
			text := shared.lab.Operator.Output()
			t.Logf("the operator's log:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return shared.lab
}

func startShared(ctx context.Context) (err error) {
	if shared.dir, err = os.MkdirTemp("", "egress-live-"); err != nil {
		return err
	}
	if shared.lab, err = lab.Start(ctx, shared.dir, stateHost); err != nil {
		return err
	}
	l := shared.lab
	if err := lab.Wipe(ctx, l.Hosts[0]); err != nil { // of a run that was killed
		return err
	}
	removeSmallPool(ctx, l.Hosts[0])
	if err := makeSmallPool(ctx, l.Hosts[0]); err != nil {
		return err
	}
	if err := l.WriteProviders(providersYAML(l)); err != nil {
		return err
	}
	return l.StartOperator()
}

// providersYAML is the lab's file, and the same entry once more with the small pool.
func providersYAML(l *lab.Lab) string {
	all := l.ProvidersYAML()
	_, entry, _ := strings.Cut(all, "entries:\n")
	pool := "pool: " + l.Hosts[0].PoolName
	second := strings.NewReplacer(lab.Entry, smallEntry, pool, "pool: "+smallPool, "poolReserveGiB: 1", "poolReserveGiB: 0").Replace(entry)
	return all + second
}

func makeSmallPool(ctx context.Context, h *kvmhost.Host) error {
	for _, step := range [][]string{
		{"mkdir", "-p", smallDir},
		{"mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", smallBytes), "tmpfs", smallDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-define-as", smallPool, "dir", "--target", smallDir},
		{"virsh", "-q", "-c", "qemu:///system", "pool-start", smallPool},
	} {
		if out, err := h.Exec(ctx, step...); err != nil {
			return fmt.Errorf("%q: %w: %s", step, err, out)
		}
	}
	return nil
}

func removeSmallPool(ctx context.Context, h *kvmhost.Host) {
	for _, step := range []string{"pool-destroy " + smallPool, "pool-undefine " + smallPool} {
		_, _ = h.Virsh(ctx, step) // it may not be there
	}
	_, _ = h.Exec(ctx, "umount", smallDir) // see above
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
	t.Cleanup(func() { remove(t, l, p) })
	return p
}

func remove(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deletedWithin)
	defer cancel()
	_ = l.Client.Delete(ctx, p) // it may be gone
	err := lab.Until(ctx, deletedWithin, "Proxy "+p.Name+" to be gone", func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKeyFromObject(p), &v1alpha1.Proxy{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Error(err)
	}
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
		t.Fatalf("%v; its conditions:\n%s", err, conditions(p))
	}
	return p
}

func isReady(p *v1alpha1.Proxy) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
}

func conditions(p *v1alpha1.Proxy) string {
	var b strings.Builder
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

func provisioned(p *v1alpha1.Proxy) metav1.Condition {
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned); c != nil {
		return *c
	}
	return metav1.Condition{}
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

func domainOf(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy) string {
	t.Helper()
	return namesOf(t, l).Domain(string(p.UID))
}

// inGuest runs a shell command in a guest, by its agent, without waiting for it.
func inGuest(ctx context.Context, h *kvmhost.Host, domain, command string) error {
	request := fmt.Sprintf(`{"execute":"guest-exec","arguments":{"path":"/bin/sh","arg":["-c",%q]}}`, command)
	_, err := h.Virsh(ctx, "qemu-agent-command", domain, request)
	return err
}

// inode of a volume's file: the same disk has the same.
func inode(t *testing.T, h *kvmhost.Host, path string) string {
	t.Helper()
	out, err := h.Exec(t.Context(), "stat", "-c", "%i", path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func overlayIn(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy, dir string) string {
	t.Helper()
	return filepath.Join(dir, namesOf(t, l).Overlay(string(p.UID)))
}
