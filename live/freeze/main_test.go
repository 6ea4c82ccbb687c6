// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package freeze proves on real hosts that one host which falls silent in the middle of an upload holds up nobody else.
package freeze

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestMain(m *testing.M) {
	cli.TakeKubernetesLogs(slog.New(slog.DiscardHandler)) // the operator's own goes to a file
	goleak.VerifyTestMain(m)
}

// The hosts of this suite: the one behind the relay, and the healthy one.
const frozenHost, healthyHost = 46, 47

const namespace = "default"

// Deadlines, from the steps that they bound.
const (
	boots         = 6 * time.Minute // four guests without KVM on a busy machine
	deletedWithin = 2 * time.Minute
	sweepTime     = time.Minute
	// graceTime of the collector, and when what it is for must be gone: two of its rounds later.
	graceTime     = time.Minute
	collectedTime = 3 * graceTime
)

// world is an installation whose operator runs in this process.
type world struct {
	*lab.Lab
	t *testing.T
	// silent and healthy are the hosts.
	silent, healthy *kvmhost.Host
	relay           *relay
	// calls of the operator to the silent host, and its own way there.
	calls   *calls
	backend libvirt.Backend
}

// newWorld starts everything but the operator.
func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := lab.Start(t.Context(), t.TempDir(), frozenHost, healthyHost)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Lab: l, t: t, silent: l.Hosts[0], healthy: l.Hosts[1], calls: &calls{}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), sweepTime)
		defer cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, h := range l.Hosts {
			if err := lab.Wipe(ctx, h); err != nil {
				t.Error(err)
			}
		}
	})
	w.relay = startRelay(t, w.silent.SSHAddress)
	if err := l.WriteProviders(w.providersYAML(bigImage(t, l.Images.Tiny))); err != nil {
		t.Fatal(err)
	}
	return w
}

// providersYAML has the silent host behind the relay, and the healthy one as it is.
func (w *world) providersYAML(image string) string {
	return w.ProvidersHead("big", map[string]string{"big": image}) +
		lab.HostYAML(w.silent, w.relay.address()) + lab.HostYAML(w.healthy, w.healthy.SSHAddress)
}

// tailBytes follow the disk that boots: noise, so that an upload is long.
const tailBytes = 64 << 20

// bigImage is the path of a raw image that boots, and that nothing can shorten.
func bigImage(t *testing.T, tiny string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "big.raw")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-O", "raw", tiny, path).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img convert: %v: %s", err, out)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.CopyN(file, rand.NewChaCha8([32]byte{1}), tailBytes); err != nil {
		t.Fatal(err)
	}
	return path
}

// operate runs the operator until stop, which returns when nothing of it is left.
func (w *world) operate() (stop func()) {
	w.t.Helper()
	file, err := cli.LoadProviders(w.Providers)
	if err != nil {
		w.t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	logPath := filepath.Join(w.Dir, "operator.log")
	logFile, err := os.Create(logPath)
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(logFile, nil))
	operator := cli.Operator{
		REST: config, File: file, AgentDir: filepath.Join(w.Root, "bin"), Metrics: "0", Log: log,
		Collector: collector.On, CollectorGrace: graceTime, Decorators: []cli.Decorator{w.recorded()},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the operator ended with: %v", err)
		}
		logFile.Close()
		if text, err := os.ReadFile(logPath); err == nil && w.t.Failed() {
			w.t.Logf("the end of the operator's log:\n%s", text[max(0, len(text)-8000):])
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// recorded notes the calls to the first host of the file, the silent one.
func (w *world) recorded() cli.Decorator {
	first := true
	return func(b libvirt.Backend) libvirt.Backend {
		if !first {
			return b
		}
		first = false
		w.backend = recorder{Backend: b, calls: w.calls}
		return w.backend
	}
}

// create makes a Proxy that is pinned to a host.
func (w *world) create(name string, host int) {
	w.t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ProxySpec{Provider: lab.Entry, Placement: &v1alpha1.Placement{Host: lab.HostName(host)}},
	}
	if err := w.Client.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string) *v1alpha1.Proxy {
	w.t.Helper()
	var p v1alpha1.Proxy
	if err := w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
		w.t.Fatal(err)
	}
	return &p
}

func (w *world) isReady(name string) bool {
	return meta.IsStatusConditionTrue(w.get(name).Status.Conditions, v1alpha1.ConditionReady)
}

func (w *world) awaitReady(name string) {
	w.t.Helper()
	err := lab.Until(w.t.Context(), boots, "Proxy "+name+" to be Ready", func(context.Context) (bool, error) { return w.isReady(name), nil })
	if err != nil {
		w.t.Fatalf("%v; its conditions:\n%+v", err, w.get(name).Status.Conditions)
	}
}

// remove deletes Proxies to their end.
func (w *world) remove(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.Client.Delete(w.t.Context(), w.get(name)); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, name := range names {
		w.until(deletedWithin, "Proxy "+name+" to be gone", func(ctx context.Context) (bool, error) {
			err := w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.Proxy{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
}

func (w *world) until(within time.Duration, what string, holds func(context.Context) (bool, error)) {
	w.t.Helper()
	if err := lab.Until(w.t.Context(), within, what, holds); err != nil {
		w.t.Fatal(err)
	}
}
