// SPDX-License-Identifier: Apache-2.0

//go:build live

package collect

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

// plant puts what is not ours on the host until the test's end; print gives all of it, to the byte.
func plant(t *testing.T, l *lab.Lab, domains, volumes []string) (print func() string) {
	t.Helper()
	foreign, err := lab.Plant(t.Context(), l.Hosts[0], domains, volumes)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if err := foreign.Remove(ctx); err != nil {
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

func TestInstancesWithoutAProxy(t *testing.T) {
	l := theLab(t)
	host, names := l.Hosts[0], namesOf(t, l)
	proxies := create(t, l, "empty", nil, "lost", "kept-1", "kept-2")
	retained := create(t, l, "empty", func(s *v1alpha1.ProxySpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }, "retained")[0]
	remove(t, l, "retained")
	awaitGone(t, l, "retained")
	stop(t, l)
	lost, kept := names.Domain(string(proxies[0].UID)), []string{names.Domain(string(proxies[1].UID)), names.Domain(string(proxies[2].UID)), names.Domain(string(retained.UID))}
	stranger := strings.Replace(names.Domain(uuid.NewString()), names.Cluster(), "somebodyelse", 1)
	foreign := plant(t, l, []string{"somebodys-vm", stranger, names.Domain(uuid.NewString())},
		[]string{"somebodys-disk.raw", stranger + ".qcow2", strings.Replace(names.Base("kvm2-old", "https://gone", "").NewVolume(), names.Cluster(), "somebodyelse", 1)})
	before := foreign()
	if err := orphan(t.Context(), l, proxies[0]); err != nil {
		t.Fatal(err)
	}
	held := hold(t, l)
	well := func(t *testing.T) {
		t.Helper()
		for _, domain := range kept {
			if !runs(t, host, domain) {
				t.Errorf("%s does not run any more", domain)
			}
		}
		if after := foreign(); after != before {
			t.Errorf("what is not ours changed:\n%s\nit was\n%s", after, before)
		}
	}

	t.Run("X11: a dry run says what would go, and removes nothing", func(t *testing.T) {
		start(t, l, "--collector=dry-run")
		health(t, l, collectedWithin, "to tell of foreign leftovers", func(h *v1alpha1.ProviderHealth) bool {
			return h.Status.Collector != nil && h.Status.Collector.Foreign != nil && h.Status.Collector.Foreign.Count == 4
		})
		event(t, l, collectedWithin, v1alpha1.ReasonWouldCollect, lost)
		if now := hold(t, l); !slices.Equal(now.Domains, held.Domains) || !slices.Equal(now.Volumes, held.Volumes) {
			t.Errorf("the host holds %+v, and held %+v", now, held)
		}
		stop(t, l)
	})
	t.Run("X11: an instance without a Proxy goes with its volumes, with a metric and an event; what is not ours is told, and untouched", func(t *testing.T) {
		start(t, l)
		awaitHost(t, l, collectedWithin, lost+" to be gone", func(h lab.Holdings) bool { return !slices.Contains(h.Domains, lost) })
		event(t, l, eventWithin, v1alpha1.ReasonCollected, lost)
		left := slices.DeleteFunc(hold(t, l).Volumes, func(v string) bool { return !strings.HasPrefix(v, lost) })
		if len(left) != 0 {
			t.Errorf("left: %q", left)
		}
		if line := `egress_collector_collected_total{dry_run="false",entry="kvm2-lab",host="host50",kind="instance"} 1`; !strings.Contains(metrics(t), line) {
			t.Errorf("no metric %s", line)
		}
		well(t)
	})
	t.Run("X13: what Retain left runs on, with a mark that says so, and no collector takes it", func(t *testing.T) {
		domain := names.Domain(string(retained.UID))
		mark := virsh(t, host, "metadata", domain, "https://egressproxies.dev/libvirt/instance")
		if !strings.Contains(mark, `retained="true"`) || !runs(t, host, domain) || !strings.Contains(strings.Join(hold(t, l).Volumes, " "), names.Overlay(string(retained.UID))) {
			t.Errorf("the mark is %s", mark)
		}
	})

	t.Run("X11: volumes without a domain go once somebody approves; those that anything refers to stay", func(t *testing.T) {
		loose, used, backing := uuid.NewString(), uuid.NewString(), uuid.NewString()
		images := "/var/lib/libvirt/images/"
		for _, v := range []string{names.Overlay(loose), names.Seed(loose), names.Overlay(used), names.Overlay(backing)} {
			virsh(t, host, "vol-create-as", host.PoolName, v, "64K", "--format", "raw")
		}
		virsh(t, host, "vol-create-as", host.PoolName, "somebodys.qcow2", "64K", "--format", "qcow2", "--backing-vol", images+names.Overlay(backing), "--backing-vol-format", "raw")
		defineWith(t, l, "somebodys-other", images+names.Overlay(used))
		at := health(t, l, collectedWithin, "to be stopped", func(h *v1alpha1.ProviderHealth) bool {
			return stopped(h) != nil && h.Status.Collector.Stopped.Instances == 3
		})
		t.Logf("the brake: %s", stopped(at).Message)
		annotate(t, l, "providerhealth", lab.Entry, v1alpha1.AnnotationApproveCollection+"="+at.Status.Collector.Stopped.Token)
		awaitHost(t, l, collectedWithin, "the loose volumes to be gone", func(h lab.Holdings) bool {
			return !slices.Contains(h.Volumes, names.Overlay(loose)) && !slices.Contains(h.Volumes, names.Seed(loose))
		})
		event(t, l, eventWithin, v1alpha1.ReasonLeftAlone, names.Overlay(used))
		event(t, l, eventWithin, v1alpha1.ReasonLeftAlone, names.Overlay(backing))
		for _, v := range []string{names.Overlay(used), names.Overlay(backing), "somebodys.qcow2"} {
			if !slices.Contains(hold(t, l).Volumes, v) {
				t.Errorf("%s is gone", v)
			}
		}
		well(t)
	})
}

// metrics are the operator's figures.
func metrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metricsAddress+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// defineWith defines somebody else's domain with a disk until the test's end.
func defineWith(t *testing.T, l *lab.Lab, name, disk string) {
	t.Helper()
	host := l.Hosts[0]
	xml := fmt.Sprintf("<domain type='qemu'><name>%s</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"+
		"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s'/><target dev='vda' bus='virtio'/></disk></devices></domain>", name, disk)
	if err := os.WriteFile(filepath.Join(host.Dir, "lib", name+".xml"), []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	virsh(t, host, "define", "/var/lib/libvirt/"+name+".xml")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if _, err := host.Virsh(ctx, "undefine", name); err != nil {
			t.Error(err)
		}
		if _, err := host.Virsh(ctx, "vol-delete", "somebodys.qcow2", "--pool", host.PoolName); err != nil {
			t.Error(err)
		}
	})
}

func TestRestoredFromAnOlderBackup(t *testing.T) {
	l := theLab(t)
	names := namesOf(t, l)
	first := create(t, l, "empty", nil, "before")[0]
	stop(t, l)
	backup := filepath.Join(t.TempDir(), "backup.tar.gz")
	if err := l.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	start(t, l)
	var all []string
	for _, p := range append(create(t, l, "empty", nil, "after-1", "after-2", "after-3"), first) {
		all = append(all, names.Domain(string(p.UID)))
	}
	stop(t, l)
	if err := l.RestoreAPI(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	start(t, l)
	at := health(t, l, collectedWithin, "to be stopped", func(h *v1alpha1.ProviderHealth) bool { return stopped(h) != nil })
	for _, domain := range all {
		if !runs(t, l.Hosts[0], domain) {
			t.Errorf("%s does not run any more", domain)
		}
	}
	if at.Status.Collector.Stopped.Instances != 3 || stopped(at).Reason != v1alpha1.ReasonTooManyLeftovers {
		t.Errorf("%+v", at.Status.Collector.Stopped)
	}
	t.Logf("API restored from an older backup: the brake stops the collector: %s: %s", stopped(at).Reason, stopped(at).Message)
	annotate(t, l, "providerhealth", lab.Entry, v1alpha1.AnnotationApproveCollection+"="+at.Status.Collector.Stopped.Token)
	awaitHost(t, l, collectedWithin, "the three to be gone", func(h lab.Holdings) bool { return len(h.Instances()) == 1 })
	if !runs(t, l.Hosts[0], names.Domain(string(first.UID))) {
		t.Error("the instance whose Proxy is in the backup does not run any more")
	}
	health(t, l, collectedWithin, "to go on", func(h *v1alpha1.ProviderHealth) bool { return stopped(h) == nil })
	t.Log("approved: the three that the backup does not know are removed, and the fourth runs")
}
