// SPDX-License-Identifier: Apache-2.0

//go:build live

package live

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// plant puts what is not ours on a host until the test ends.
func plant(t *testing.T, host *kvmhost.Host, domains, volumes []string) lab.Foreign {
	t.Helper()
	f, err := lab.Plant(t.Context(), host, domains, volumes)
	t.Cleanup(func() {
		if err := f.Remove(cleanupContext(t)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fingerprint(t *testing.T, f lab.Foreign) string {
	t.Helper()
	text, err := f.Fingerprint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestForeignThingsSurvive(t *testing.T) {
	l := theLab(t)
	if err := l.StopOperator(); err != nil {
		t.Fatal(err)
	}
	var identity corev1.ConfigMap
	if err := l.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.ConfigMapName}, &identity); err != nil {
		t.Fatal(err)
	}
	names, err := libvirt.NewNames(identity.Data[cluster.ConfigMapKey])
	if err != nil {
		t.Fatal(err)
	}
	// The Proxy exists, and its UID is known, before any operator sees it.
	host := l.Hosts[0]
	decoyed := proxy("decoyed", onImage("empty", lab.HostName(host.Number)))
	create(t, l, decoyed)
	f := plant(t, host,
		[]string{names.Domain(string(decoyed.UID)), "somebodys-vm"},
		[]string{"somebodys-disk.raw", "egress-anothercluster-vm-00000000000000000000000000000000.qcow2", names.Overlay(string(decoyed.UID)), names.Seed(string(decoyed.UID))})
	before := fingerprint(t, f)
	if err := l.StartOperator(); err != nil {
		t.Fatal(err)
	}

	t.Run("X6: a domain of our name without our mark is a Conflict and stays as it is", func(t *testing.T) {
		p := awaitReason(t, l, "decoyed", madeWithin, v1alpha1.ConditionProvisioned, v1alpha1.ReasonConflict)
		if !strings.Contains(conditions(p), names.Domain(string(p.UID))) {
			t.Errorf("the conditions do not name the domain:\n%s", conditions(p))
		}
		same(t, f, before)
	})
	t.Run("another Proxy beside them is made and deleted", func(t *testing.T) {
		create(t, l, proxy("beside", onImage("empty", lab.HostName(host.Number))))
		await(t, l, "beside", madeWithin, "to have an instance that runs", booting)
		remove(t, l, "beside")
		same(t, f, before)
	})
	t.Run("deleting the Proxy says what stands in the way, and an annotation ends it", func(t *testing.T) {
		p := &v1alpha1.Proxy{}
		key := client.ObjectKey{Namespace: namespace, Name: "decoyed"}
		if err := l.Client.Get(t.Context(), key, p); err != nil {
			t.Fatal(err)
		}
		if err := l.Client.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		awaitReason(t, l, "decoyed", madeWithin, v1alpha1.ConditionProvisioned, v1alpha1.ReasonDeleteFailed)
		same(t, f, before)
		if _, err := l.Kubectl(t.Context(), "", "annotate", "proxy", "decoyed", v1alpha1.AnnotationAbandon+"="+v1alpha1.AbandonConfirmed); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Kubectl(t.Context(), "", "wait", "--for=delete", "proxy/decoyed", "--timeout=60s"); err != nil {
			t.Fatal(err)
		}
		same(t, f, before)
	})
}

func same(t *testing.T, f lab.Foreign, before string) {
	t.Helper()
	if after := fingerprint(t, f); after != before {
		t.Errorf("somebody else's things were touched; before:\n%s\nafter:\n%s", before, after)
	}
}

// booting says that the instance runs, whether or not its guest reports anything.
func booting(p *v1alpha1.Proxy) bool {
	return strings.Contains(conditions(p), "Provisioned=False "+v1alpha1.ReasonBooting) || strings.Contains(conditions(p), "Provisioned=True")
}
