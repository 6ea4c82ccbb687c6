// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// slow and quick are the hosts of TestOneUploadHoldsNobodyUp.
const slow, quick = "h1", "h2"

func TestOneUploadHoldsNobodyUp(t *testing.T) {
	u := newUploads(t)
	var ahead atomic.Int64 // of the controller's clock
	w := newWorld(t, func(w *world) {
		w.file.Entries[0].Defaults.MemoryMiB = 128
		w.providers = map[string]provider.Provider{"home": u}
		w.prober, w.workers = &praise{exits: map[string]netip.Addr{}}, 3
		w.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.patience = 90 * time.Second // so many at once; workers that waited would be free again, one pass after another, after 170 s
	})
	t.Run("H1b: 50 Proxies wait for one upload, and hold up none of 3 workers", func(t *testing.T) {
		inner := *w
		inner.t = t
		u.holdNobodyUp(&inner, &ahead)
	})
	u.gate.open() // in any case, so that all ends
}

func (u *uploads) holdNobodyUp(w *world, ahead *atomic.Int64) {
	on := func(host string) func(*v1alpha1.ProxySpec) {
		return func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: host} }
	}
	waiting := make([]*v1alpha1.Proxy, 50)
	for i := range waiting {
		waiting[i] = w.proxy(fmt.Sprintf("waits-%d", i), on(slow))
		w.create(waiting[i])
	}
	w.made("passes", on(quick))
	if !u.gate.closed() {
		w.t.Fatal("the upload ended before the Proxy of the other host was Ready")
	}
	for _, p := range waiting {
		w.wait(p, "waits for the image", has(v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonFetchingImage))
	}
	ahead.Store(int64(10 * time.Minute)) // progress is shown now and then, and who waits long is looked at seldom
	for _, p := range waiting {
		w.wait(p, "shows the progress", func(p *v1alpha1.Proxy) bool {
			return p.Status.Progress == 50 && strings.Contains(message(p, v1alpha1.ConditionProvisioned), "50% (4.0 MiB of 8.0 MiB)")
		})
	}
	u.forgetTold()
	u.gate.open()
	for _, p := range waiting {
		w.wait(p, "Ready", ready)
		if !u.wasTold(string(p.UID)) {
			w.t.Errorf("Proxy %s was not woken when the upload ended", p.Name)
		}
	}
	if n := u.onTheWire(slow); n != 1 {
		w.t.Errorf("%d uploads of the base to one host", n)
	}
	w.poll("events of all at the start and the end of the fetch", func() bool {
		notes := w.notes()
		return !slices.ContainsFunc(waiting, func(p *v1alpha1.Proxy) bool {
			return !containing(notes[p.UID], "put into pool") || !containing(notes[p.UID], "the wait for the image is over")
		})
	})
}

// notes are the texts of the events so far, by what they are about.
func (w *world) notes() map[types.UID][]string {
	w.t.Helper()
	var all corev1.EventList
	if err := w.client.List(w.t.Context(), &all, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	notes := map[types.UID][]string{}
	for i := range all.Items {
		about := all.Items[i].InvolvedObject.UID
		notes[about] = append(notes[about], all.Items[i].Message)
	}
	return notes
}

func containing(all []string, part string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) })
}

// uploads is the real libvirt provider over two daemons in memory; the upload of a base to the slow one stops half-way, until the gate opens.
type uploads struct {
	*libvirt.Provider
	daemons map[string]*libvirttest.Daemon
	gate    *gate

	mu   sync.Mutex
	told map[string]bool
}

func newUploads(t *testing.T) *uploads {
	t.Helper()
	names, err := libvirt.NewNames("0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	u := &uploads{daemons: map[string]*libvirttest.Daemon{}, gate: newGate(), told: map[string]bool{}}
	for _, host := range []string{slow, quick} {
		u.daemons[host] = libvirttest.New(libvirttest.Config{PoolCapacity: 1 << 40})
	}
	o := libvirt.Options{
		Cluster: names.Cluster(), Agent: libvirttest.Agent,
		Entry: config.Entry{
			Name: "home", Type: config.TypeKVM2, DefaultImage: "tiny", MaxImageBytes: 1 << 30,
			Hosts: []config.Host{
				{Name: slow, Address: "198.51.100.7", Pool: "default", Network: "default"},
				{Name: quick, Address: "198.51.100.8", Pool: "default", Network: "default"},
			},
			Images: map[string]config.Image{"tiny": {URL: "file://" + bigImage(t), Arch: config.ArchX8664, Firmware: config.FirmwareBIOS}},
		},
		Backend: func(h config.Host) libvirt.Backend {
			b := addressed{u.daemons[h.Name].Backend(), names}
			if h.Name == slow {
				return halved{b, u.gate}
			}
			return b
		},
	}
	if u.Provider, err = libvirt.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// bigImage is the path of a qcow2 image of 8 MiB.
func bigImage(t *testing.T) string {
	t.Helper()
	content := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	clear(content[:64<<10])
	copy(content, "QFI\xfb")
	binary.BigEndian.PutUint32(content[4:], 3)
	binary.BigEndian.PutUint32(content[20:], 16)
	binary.BigEndian.PutUint64(content[24:], 1<<30)
	binary.BigEndian.PutUint32(content[100:], 104)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Watch notes who is told.
func (u *uploads) Watch(ctx context.Context, notify func(uid string)) error {
	return u.Provider.Watch(ctx, func(uid string) {
		u.mu.Lock()
		u.told[uid] = true
		u.mu.Unlock()
		notify(uid)
	})
}

func (u *uploads) forgetTold() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.told)
}

func (u *uploads) wasTold(uid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told[uid]
}

// onTheWire counts the uploads of bases to a host.
func (u *uploads) onTheWire(host string) (n int) {
	for _, call := range u.daemons[host].Calls() {
		if strings.HasPrefix(call, "Upload ") && strings.Contains(call, "-base-") {
			n++
		}
	}
	return n
}

// gate is closed at first.
type gate struct {
	open   func()
	opened chan struct{}
}

func newGate() *gate {
	opened := make(chan struct{})
	return &gate{sync.OnceFunc(func() { close(opened) }), opened}
}

func (g *gate) closed() bool {
	select {
	case <-g.opened:
		return false
	default:
		return true
	}
}

// addressed gives each guest an address.
type addressed struct {
	libvirt.Backend
	names libvirt.Names
}

func (a addressed) InterfaceAddresses(_ context.Context, domain string, _ libvirt.AddressSource) ([]libvirt.Interface, error) {
	uid, _ := a.names.InstanceUID(domain)
	mac, err := net.ParseMAC(a.names.MAC(uid))
	if err != nil {
		return nil, err
	}
	return []libvirt.Interface{{MAC: mac.String(), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, mac[3], mac[4], mac[5]})}}}, nil
}

// halved takes half of a base, and the rest once the gate is open.
type halved struct {
	libvirt.Backend
	gate *gate
}

func (h halved) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	own, err := h.Backend.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	return halved{own, h.gate}, nil
}

func (h halved) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	if strings.Contains(name, "-base-") {
		r = io.MultiReader(io.LimitReader(r, length/2), waiting{ctx, h.gate}, r)
	}
	return h.Backend.Upload(ctx, name, r, length)
}

// waiting is an empty reader that ends when the gate is open.
type waiting struct {
	ctx  context.Context
	gate *gate
}

func (w waiting) Read([]byte) (int, error) {
	select {
	case <-w.gate.opened:
		return 0, io.EOF
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
}

// praise is a prober that finds every proxy healthy, with its own address as the exit.
type praise struct {
	mu    sync.Mutex
	exits map[string]netip.Addr
}

func (p *praise) Watch(key string, t probe.Target, _ probe.Policy, _ probe.Health) {
	address, err := netip.ParseAddrPort(t.Address)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exits[key] = address.Addr()
}

func (p *praise) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.exits, key)
}

func (p *praise) Health(key string) (probe.Health, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	exit, watched := p.exits[key]
	return probe.Health{Proven: true, Healthy: true, Reason: probe.Succeeded, Last: probe.Succeeded, Message: "served", Exit: exit}, watched
}
