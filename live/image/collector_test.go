// SPDX-License-Identifier: Apache-2.0

//go:build live

package image

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// collected is a collector.Reporter.
type collected struct {
	t       *testing.T
	removed []string
}

func (c *collected) Collected(_, _ string, l provider.Leftover, _ bool) {
	c.removed = append(c.removed, l.Object)
}

func (c *collected) Kept(_, _ string, l provider.Leftover, why string) {
	c.t.Logf("kept: %s: %s", l.Object, why)
}

func (c *collected) Failed(_, _ string, err error) { c.t.Errorf("the collector: %v", err) }

func (c *collected) Seen(string, int, bool) {}

func (c *collected) Stopped(_ string, stop v1alpha1.CollectorStop) {
	c.t.Errorf("the collector stopped: %+v", stop)
}

func (c *collected) Resumed(_, _ string) {}

func (c *collected) Vanished(_, _ string, p collector.Proxy) { c.t.Errorf("vanished: %+v", p) }

// memory is a collector.Ledger.
type memory struct{ record collector.Record }

func (m *memory) Load(context.Context, string) (collector.Record, error) { return m.record, nil }

func (m *memory) Save(_ context.Context, _ string, status v1alpha1.CollectorStatus) error {
	m.record.Status = status
	return nil
}

// proxies are those that the cluster's instances belong to, by the names of their domains.
func (o *operator) proxies(ctx context.Context) (collector.Proxies, error) {
	domains, err := o.hand.Domains(ctx)
	var all []collector.Proxy
	for _, d := range domains {
		if uid, ok := o.names.InstanceUID(d.Name); ok {
			all = append(all, collector.Proxy{UID: uid, Name: d.Name})
		}
	}
	if err != nil {
		return collector.Proxies{}, err
	}
	return collector.NewProxies(all)
}

// collect has a collector work on the host, by a clock that passes a grace period from one sweep to the next, and returns what it removed.
func (o *operator) collect(periods int) []string {
	o.t.Helper()
	o.eventually("the host is looked at", madeWithin, func(context.Context) bool { return o.Hosts()[0].Reason != provider.HostUnknown })
	now, report := time.Now(), &collected{t: o.t}
	c := collector.Collector{
		Providers: func() map[string]provider.Provider { return map[string]provider.Provider{"kvm2-images": o.Provider} },
		Proxies:   o.proxies, Ledger: &memory{}, Wake: func(string, string) {},
		Mode: collector.On, Grace: collector.DefaultGrace, Report: report, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	}
	for range periods + 1 {
		c.Sweep(o.t.Context())
		now = now.Add(c.Grace)
	}
	return report.removed
}

// unfinished are the cluster's bases and agents without a marker.
func (o *operator) unfinished() []string {
	all := append(o.own("-base-"), o.own("-agent-")...)
	return slices.DeleteFunc(all, func(v string) bool {
		return strings.Contains(v, ".img.") || slices.ContainsFunc(all, func(m string) bool { return strings.HasPrefix(m, v+".v") })
	})
}

func TestBasesAreCollected(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	_, _, empty := kvmhost.Images(t)
	cluster := newCluster(t, host)
	first := operate(t, host, cluster, config.Image{URL: "file://" + empty}, nil)
	uid := newUID()
	first.mustMake(uid)
	base := first.backing(uid)
	// The providers file names another image now.
	now := operate(t, host, cluster, config.Image{URL: "file://" + empty, SHA256: digestOf(read(t, empty))}, nil)
	published := func() bool { _, ok := first.bases()[base]; return ok }

	foreign := plantDecoys(t, host, strings.Replace(base, "-kvm2-images-", "-kvm2-images-2-", 1), strings.Replace(base, cluster, "somebodyelse", 1))
	before := foreign()

	t.Run("a base under a guest stays", func(t *testing.T) {
		if removed := now.collect(3); len(removed) != 0 || !published() || !first.runs(uid) {
			t.Errorf("removed %q", removed)
		}
	})
	first.remove(uid)
	t.Run("a base under a disk outside of the pool stays while somebody's guest runs on it", func(t *testing.T) {
		end := runOn(t, host, base)
		if removed := now.collect(3); len(removed) != 0 || !published() {
			t.Errorf("removed %q", removed)
		}
		end()
	})
	t.Run("a base that nothing refers to goes: its marker first, and the base a grace period later", func(t *testing.T) {
		if removed := now.collect(1); len(removed) != 1 || !strings.HasPrefix(removed[0], base+".v1.") {
			t.Errorf("removed %q", removed)
		}
		if removed := now.collect(1); !slices.Equal(removed, []string{base}) {
			t.Errorf("removed %q", removed)
		}
	})
	if after := foreign(); after != before {
		t.Errorf("what is not ours changed:\n%s\nit was\n%s", after, before)
	}
}

// plantDecoys makes volumes of these names until the test's end; print gives all of them, to the byte.
func plantDecoys(t *testing.T, host *kvmhost.Host, names ...string) (print func() string) {
	t.Helper()
	foreign, err := lab.Plant(t.Context(), host, nil, names)
	t.Cleanup(func() {
		if err := foreign.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		text, err := foreign.Fingerprint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// runOn runs a domain of somebody else's on a disk outside of the pool that is backed by a base, which only the live XML shows.
func runOn(t *testing.T, host *kvmhost.Host, base string) (end func()) {
	t.Helper()
	const name, disk = "somebodys", "/var/lib/libvirt/somebodys.qcow2"
	info, err := host.Exec(t.Context(), "qemu-img", "create", "-f", "qcow2", "-b", "/var/lib/libvirt/images/"+base, "-F", "qcow2", disk)
	if err != nil {
		t.Fatalf("%v: %s", err, info)
	}
	xml := fmt.Sprintf("<domain type='qemu'><name>%s</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"+
		"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='%s'/><target dev='vda' bus='virtio'/></disk></devices></domain>", name, disk)
	if err := os.WriteFile(filepath.Join(host.Dir, "lib", "somebodys.xml"), []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = host.Virsh(ctx, "destroy", name)
		if _, err := host.Virsh(ctx, "undefine", name); err != nil {
			t.Error(err)
		}
		if _, err := host.Exec(ctx, "rm", disk); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	for _, command := range [][]string{{"define", "/var/lib/libvirt/somebodys.xml"}, {"start", name}} {
		if _, err := host.Virsh(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
	}
	return end
}
