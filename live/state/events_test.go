// SPDX-License-Identifier: Apache-2.0

//go:build live

package state

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// counted is a provider of a cluster of its own over the lab's host, with what it asks libvirt.
type counted struct {
	*libvirt.Provider
	host    *kvmhost.Host
	names   libvirt.Names
	backend libvirt.Backend

	mu    sync.Mutex
	calls map[string]int
	// between answers once instead of the source of a guest's addresses; nil for nothing.
	between func(ctx context.Context, name string, source libvirt.AddressSource) ([]libvirt.Interface, error)
}

// reading is a Backend with something between the two reads of a Get.
type reading struct {
	libvirt.Backend
	of *counted
}

func (r reading) InterfaceAddresses(ctx context.Context, name string, source libvirt.AddressSource) ([]libvirt.Interface, error) {
	r.of.mu.Lock()
	between := r.of.between
	r.of.between = nil
	r.of.mu.Unlock()
	if between != nil {
		return between(ctx, name, source)
	}
	return r.Backend.InterfaceAddresses(ctx, name, source)
}

func newCounted(t *testing.T, l *lab.Lab) *counted {
	t.Helper()
	h, reserve := l.Hosts[0], int64(0)
	c := &counted{host: h, calls: map[string]int{}}
	entry := config.Entry{
		Name: "kvm2-counted", Type: config.TypeKVM2, AllowEmulation: true, DefaultImage: "empty",
		Hosts:         []config.Host{{Name: "host", Address: h.SSHAddress, User: h.User, Socket: h.Socket, Pool: h.PoolName, Network: h.Network}},
		Credentials:   config.SSHCredentials{PrivateKeyFile: h.KeyFile, KnownHostsFile: h.KnownHostsFile},
		Images:        map[string]config.Image{"empty": {URL: "file://" + l.Images.Empty, Arch: config.ArchX8664, Firmware: config.FirmwareBIOS}},
		MaxImageBytes: 1 << 30, PoolReserveGiB: &reserve,
	}
	cluster := libvirttest.FreshCluster()
	var err error
	if c.names, err = libvirt.NewNames(cluster); err != nil {
		t.Fatal(err)
	}
	backend := kvm2.CountedBackends(entry.Credentials, func(_, procedure string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[procedure]++
	})
	c.Provider, err = libvirt.New(libvirt.Options{
		Cluster: cluster, Entry: entry, Agent: libvirttest.Agent,
		Backend: func(h config.Host) libvirt.Backend {
			c.backend = backend(h)
			return reading{c.backend, c}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// make makes an instance that halts at once, and that goes at the end of the test.
func (c *counted) make(t *testing.T) provider.InstanceRef {
	t.Helper()
	spec := libvirttest.Spec("host", uuid.NewString(), "empty")
	spec.Software, spec.MemoryMiB = provider.SoftwareNone, 64
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if err := lab.Until(ctx, cleanupTime, "the instance to be gone", func(ctx context.Context) (bool, error) {
			return provider.IsNotFound(c.Delete(ctx, spec.InstanceRef)), nil
		}); err != nil {
			t.Error(err)
		}
	})
	err := lab.Until(t.Context(), madeWithin, "the instance to run", func(ctx context.Context) (bool, error) {
		_, err := c.Create(ctx, spec)
		if provider.IsInProgress(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return spec.InstanceRef
}

// gets reads an instance.
func (c *counted) gets(t *testing.T, ref provider.InstanceRef) provider.Instance {
	t.Helper()
	i, err := c.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAGuestThatIsKilledIsSeen(t *testing.T) {
	l := theLab(t)
	c := newCounted(t, l)
	ref := c.make(t)
	if i := c.gets(t, ref); i.State != provider.StateRunning {
		t.Fatalf("state %s", i.State)
	}
	told := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = c.Watch(ctx, func(uid string) { told <- uid }) }()
	pause(t, 2*time.Second) // the events of its start are over
	for len(told) > 0 {
		<-told
	}
	pid, err := c.host.Exec(t.Context(), "sh", "-c", "cat /run/libvirt/qemu/"+c.names.Domain(ref.UID)+".pid")
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if _, err := c.host.Exec(t.Context(), "kill", "-KILL", strings.TrimSpace(pid)); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case uid := <-told:
			if uid != ref.UID {
				continue
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing was told within a minute")
		}
		after := time.Since(killed)
		i := c.gets(t, ref)
		if i.State == provider.StateRunning {
			continue
		}
		seen := time.Since(killed)
		t.Logf("a guest killed behind our back: told after %d ms, seen after %d ms (%s)", after.Milliseconds(), seen.Milliseconds(), i.StateReason)
		if seen > time.Second {
			t.Errorf("seen after %v", seen)
		}
		return
	}
}

func TestTheLinkDiesBetweenTheTwoReads(t *testing.T) {
	l := theLab(t)
	c := newCounted(t, l)
	ref := c.make(t)
	before := c.gets(t, ref)
	t.Run("H3: a link that is killed between the reads of state and addresses is an error, and no absence", func(t *testing.T) {
		// A link of its own, which is not dialled anew as the shared one is.
		link, err := c.backend.Dedicated(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer link.Close()
		c.mu.Lock()
		c.between = func(ctx context.Context, name string, source libvirt.AddressSource) ([]libvirt.Interface, error) {
			if _, err := c.host.Exec(ctx, "pkill", "-KILL", "-f", "^sshd: root"); err != nil {
				t.Errorf("no link was killed: %v", err)
			}
			return link.InterfaceAddresses(ctx, name, source)
		}
		c.mu.Unlock()
		c.DoubtAddresses(ref)
		i, err := c.Get(t.Context(), ref)
		if err == nil || provider.KindOf(err) != provider.Transient {
			t.Errorf("got %+v, %v", i, err)
		}
		t.Logf("the link killed between the two reads: %v", err)
		var after provider.Instance
		if err := lab.Until(t.Context(), madeWithin, "the host to be read again", func(ctx context.Context) (bool, error) {
			var err error
			after, err = c.Get(ctx, ref)
			if provider.IsNotFound(err) {
				return false, err
			}
			return err == nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		if after.State != provider.StateRunning || !after.Created.Equal(before.Created) {
			t.Errorf("after it: %+v, before it: %+v", after, before)
		}
	})
}

func TestCallsOfASteadyPoll(t *testing.T) {
	l := theLab(t)
	c := newCounted(t, l)
	var refs []provider.InstanceRef
	var first map[string]int
	for _, n := range []int{1, 8} {
		for len(refs) < n {
			refs = append(refs, c.make(t))
		}
		poll := func() {
			for _, ref := range refs {
				c.gets(t, ref)
			}
		}
		poll()
		pause(t, 3*time.Second) // the events of their starts are over
		poll()
		c.mu.Lock()
		clear(c.calls)
		c.mu.Unlock()
		for range 30 { // a poll each second, for three of the host's own readings and one of its checks
			poll()
			pause(t, time.Second)
		}
		c.mu.Lock()
		now := maps.Clone(c.calls)
		c.mu.Unlock()
		states := now["ConnectGetAllDomainStats"]
		t.Logf("%d instances, 30 polls in 30 s: %d bulk readings; all calls: %v", n, states, now)
		if first == nil {
			first = now
		}
		if d := states - first["ConnectGetAllDomainStats"]; d < -1 || d > 1 {
			t.Errorf("%d bulk readings, and %d with one instance", states, first["ConnectGetAllDomainStats"])
		}
		if n := now["DomainGetMetadata"] + now["DomainGetState"]; n > 0 {
			t.Errorf("%d calls for the state or the mark of a single domain", n)
		}
	}
}

func TestConsoleOfAGuestThatBoots(t *testing.T) {
	l := theLab(t)
	p := proxyOf(t, l, lab.Entry, "talks", "tiny")
	await(t, l, p.Name, madeWithin, "to run", runs)
	var text string
	err := lab.Until(t.Context(), bootedWithin, "the console to say that the guest is up", func(ctx context.Context) (bool, error) {
		text, _ = l.Console(ctx, namespace, p.Name) // nothing is kept before the guest has said something
		return strings.Contains(text, "tiny guest up"), nil
	})
	if err != nil {
		t.Fatalf("%v; it shows %q", err, text)
	}
	t.Logf("egress-proxies console -n %s %s:\n%s", namespace, p.Name, strings.TrimSpace(text))
	await(t, l, p.Name, bootedWithin, "to be Ready", isReady)
	if after, err := l.Console(t.Context(), namespace, p.Name); err != nil || !strings.Contains(after, "tiny guest up") {
		t.Errorf("once it is Ready: %q, %v", after, err)
	}
	for _, line := range slices.Collect(strings.Lines(l.Operator.Output())) {
		if strings.Contains(line, "tiny guest up") {
			t.Errorf("what the console says stands in the log: %s", line)
		}
	}
	if info, err := filepath.Glob(filepath.Join(l.Dir, "run", "*")); err != nil || len(info) != 1 {
		t.Errorf("in the socket's folder: %v, %v", info, err)
	}
}
