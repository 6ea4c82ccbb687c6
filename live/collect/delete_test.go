// SPDX-License-Identifier: Apache-2.0

//go:build live

package collect

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// cut takes the host off the network until mend, or the test's end.
func cut(t *testing.T, l *lab.Lab) (mend func()) {
	t.Helper()
	if err := l.Hosts[0].Cut(t.Context(), kvmhost.Network); err != nil {
		t.Fatal(err)
	}
	isCut := true
	mend = func() {
		if !isCut {
			return
		}
		isCut = false
		if err := l.Hosts[0].Mend(context.WithoutCancel(t.Context()), kvmhost.Network); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(mend)
	return mend
}

func TestTheHostIsDown(t *testing.T) {
	l := theLab(t)
	create(t, l, "empty", nil, "waiting")
	mend := cut(t, l)
	remove(t, l, "waiting")
	message := deleteFailed(t, l, "waiting", v1alpha1.AnnotationAbandon)
	t.Logf("deleting a Proxy whose host is down keeps its finalizer, and says so: %s", message)
	mend()
	awaitGone(t, l, "waiting")
	held := hold(t, l)
	if left := append(held.Instances(), held.Loose()...); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	t.Log("the host is back: the Proxy is gone, and nothing of it is left")
}

func TestTheEntryIsRemoved(t *testing.T) {
	l := theLab(t)
	proxies := create(t, l, "empty", nil, "given-up", "patient", "later", "bystander")
	givenUp, bystander := namesOf(t, l).Domain(string(proxies[0].UID)), namesOf(t, l).Domain(string(proxies[3].UID))
	mend := cut(t, l)
	remove(t, l, "given-up", "patient")
	for _, name := range []string{"given-up", "patient"} {
		deleteFailed(t, l, name, v1alpha1.AnnotationAbandon)
	}
	stop(t, l)
	providers, err := os.ReadFile(l.Providers)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := l.WriteProviders(string(providers)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	if err := l.WriteProviders(strings.Replace(string(providers), "- name: "+lab.Entry, "- name: kvm2-other", 1)); err != nil {
		t.Fatal(err)
	}
	mend()
	start(t, l)
	remove(t, l, "later")
	for _, name := range []string{"given-up", "patient", "later"} {
		t.Logf("the entry is gone, Proxy %s: %s", name, deleteFailed(t, l, name, "has no entry"))
	}
	annotate(t, l, "proxy", "given-up", v1alpha1.AnnotationAbandon+"="+v1alpha1.AbandonConfirmed)
	awaitGone(t, l, "given-up")
	event(t, l, eventWithin, v1alpha1.ReasonAbandoned, givenUp)
	if !runs(t, l.Hosts[0], givenUp) {
		t.Error("the instance that was given up is gone, though nobody who knows its host was asked")
	}
	stop(t, l)
	restore()
	start(t, l)
	awaitGone(t, l, "patient", "later")
	awaitHost(t, l, collectedWithin, "what was given up to be collected", func(h lab.Holdings) bool {
		return slices.Equal(h.Instances(), []string{bystander}) && len(h.Loose()) == 2
	})
	t.Log("the entry removed while Proxies are being deleted: none wedged; what was given up is collected when the entry is back")
}

// what libvirt keeps of a domain beside its definition, and where.
var kept = map[string]string{
	"snapshots": "qemu/snapshot", "checkpoints": "qemu/checkpoint", "a managed save": "qemu/save", "NVRAM": "qemu/nvram",
}

func TestWhatLibvirtKeepsBesideADomain(t *testing.T) {
	l := theLab(t)
	host, names := l.Hosts[0], namesOf(t, l)
	proxies := create(t, l, "efi", nil, "snapshots", "checkpoints")
	stop(t, l)
	first, second := names.Domain(string(proxies[0].UID)), names.Domain(string(proxies[1].UID))
	definition := func(domain string) string {
		text, err := host.Virsh(t.Context(), "dumpxml", domain)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// What libvirt keeps of one counts, and not its bitmap, which disks of an older format cannot have.
	checkpoint := "<domaincheckpoint><name>cp1</name><creationTime>1700000000</creationTime>" +
		"<disks><disk name='vda' checkpoint='bitmap' bitmap='cp1'/></disks>" + definition(second) + "</domaincheckpoint>"
	if err := os.WriteFile(filepath.Join(host.Dir, "lib", "checkpoint.xml"), []byte(checkpoint), 0o600); err != nil {
		t.Fatal(err)
	}
	virsh(t, host, "checkpoint-create", second, "/var/lib/libvirt/checkpoint.xml", "--redefine")
	xml := "<domainsnapshot><name>s1</name><state>shutoff</state><creationTime>1700000000</creationTime>" + definition(first) + "</domainsnapshot>"
	if err := os.WriteFile(filepath.Join(host.Dir, "lib", "snapshot.xml"), []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	virsh(t, host, "snapshot-create", first, "/var/lib/libvirt/snapshot.xml", "--redefine")
	virsh(t, host, "managedsave", first)
	of := map[string]string{"snapshots": first, "checkpoints": second, "a managed save": first, "NVRAM": first}
	files := func(what string) []string {
		all, err := filepath.Glob(filepath.Join(host.Dir, "lib", kept[what], of[what]+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for what := range kept {
		if len(files(what)) == 0 {
			t.Errorf("the host keeps no %s to lose", what)
		}
	}
	remove(t, l, "snapshots", "checkpoints") // before an operator starts a guest again, and drops its saved state
	start(t, l)
	awaitGone(t, l, "snapshots", "checkpoints")
	for what := range kept {
		t.Run("L5: "+what+" are no hindrance, and nothing of them is left", func(t *testing.T) {
			if left := files(what); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
			if held := hold(t, l); slices.Contains(held.Domains, of[what]) || len(held.Loose()) != 0 {
				t.Errorf("left: %+v", held)
			}
		})
	}
}
