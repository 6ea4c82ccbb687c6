// SPDX-License-Identifier: Apache-2.0

//go:build live

package state

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

func TestDecoy(t *testing.T) {
	l := theLab(t)
	host := l.Hosts[0]
	const decoy = "somebodys-vm"
	f, err := lab.Plant(t.Context(), host, []string{decoy}, []string{"somebodys-disk.raw"})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if err := f.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Fingerprint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same := func(t *testing.T, when string) {
		t.Helper()
		if after, err := f.Fingerprint(t.Context()); err != nil || after != before {
			t.Errorf("%s, somebody's VM changed: %v\nbefore:\n%s\nafter:\n%s", when, err, before, after)
		}
	}
	t.Run("M2: status.providerID that points at somebody's VM harms nothing", func(t *testing.T) {
		p := proxyOf(t, l, lab.Entry, "tampered", "empty")
		p = await(t, l, p.Name, madeWithin, "to run", runs)
		tampered := p.DeepCopy()
		tampered.Status.ProviderID = libvirt.ProviderID(p.Status.Host, decoy)
		if err := l.Client.Status().Patch(t.Context(), tampered, client.MergeFrom(p)); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Virsh(t.Context(), "destroy", domainOf(t, l, p)); err != nil { // so that something has to be done
			t.Fatal(err)
		}
		own := libvirt.ProviderID(p.Status.Host, domainOf(t, l, p))
		await(t, l, p.Name, madeWithin, "to have its own instance again", func(p *v1alpha1.Proxy) bool { return runs(p) && p.Status.ProviderID == own })
		same(t, "after the tampering")
		remove(t, l, p)
		same(t, "after the deletion")
		t.Logf("status.providerID pointed at %s: harmed nothing", decoy)
	})
	t.Run("M2: a running VM of our name without our mark is a Conflict and survives everything", func(t *testing.T) {
		p := proxyOf(t, l, lab.Entry, "usurped", "empty")
		p = await(t, l, p.Name, madeWithin, "to run", runs)
		domain := domainOf(t, l, p)
		// Somebody replaces the domain by one of the same name, while no operator is there to make it again at once.
		if err := l.StopOperator(); err != nil {
			t.Fatal(err)
		}
		if out, err := host.Exec(t.Context(), "sh", "-c", "virsh -q destroy "+domain+"; virsh -q undefine "+domain+
			"; virsh -q dumpxml "+decoy+" | sed -e 's/"+decoy+"/"+domain+"/' -e '/<uuid>/d' >/run/usurper.xml && virsh -q define /run/usurper.xml && virsh -q start "+domain); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		look := func() string {
			text, err := host.Virsh(t.Context(), "dumpxml", domain)
			if err != nil {
				t.Error(err)
			}
			return text
		}
		usurper := look()
		if err := l.StartOperator(); err != nil {
			t.Fatal(err)
		}
		p = await(t, l, p.Name, madeWithin, "to be in conflict", func(p *v1alpha1.Proxy) bool { return provisioned(p).Reason == v1alpha1.ReasonConflict })
		t.Logf("a decoy with our name and no mark: %s: %s", provisioned(p).Reason, provisioned(p).Message)
		if err := l.Client.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		await(t, l, p.Name, madeWithin, "to say that it cannot be deleted", func(p *v1alpha1.Proxy) bool { return provisioned(p).Reason == v1alpha1.ReasonDeleteFailed })
		if now := look(); now != usurper {
			t.Errorf("somebody's VM changed:\n%s\nwas\n%s", now, usurper)
		}
		if out, err := host.Exec(t.Context(), "sh", "-c", "virsh -q destroy "+domain+"; virsh -q undefine "+domain); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	t.Run("X10: an instance that was removed behind our back is made again", func(t *testing.T) {
		p := proxyOf(t, l, lab.Entry, "removed", "empty")
		p = await(t, l, p.Name, madeWithin, "to run", runs)
		domain := domainOf(t, l, p)
		first, err := host.Virsh(t.Context(), "domid", domain)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := host.Exec(t.Context(), "sh", "-c", "virsh -q destroy "+domain+"; virsh -q undefine "+domain); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		err = lab.Until(t.Context(), madeWithin, "the domain to be made again", func(ctx context.Context) (bool, error) {
			id, err := host.Virsh(ctx, "domid", domain)
			return err == nil && strings.TrimSpace(id) != "-" && id != first, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		await(t, l, p.Name, madeWithin, "to run", runs)
	})
	t.Run("X10: a link that breaks is no absence: nothing is made anew", func(t *testing.T) {
		p := proxyOf(t, l, lab.Entry, "linkless", "empty")
		p = await(t, l, p.Name, madeWithin, "to run", runs)
		domain := domainOf(t, l, p)
		first, err := host.Virsh(t.Context(), "domid", domain)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			_, _ = host.Exec(t.Context(), "pkill", "-KILL", "-f", "^sshd: root") // there may be none at this moment
			pause(t, time.Second)
		}
		await(t, l, p.Name, madeWithin, "to run", runs)
		if now, err := host.Virsh(t.Context(), "domid", domain); err != nil || now != first {
			t.Errorf("domain number %q, was %q: %v", now, first, err)
		}
	})
}

func pause(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
