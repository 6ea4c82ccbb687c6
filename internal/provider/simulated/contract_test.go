// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"encoding/json"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/providertest"
)

func newProvider(t *testing.T, e config.Entry) *Provider {
	t.Helper()
	p, err := New(Options{Cluster: cluster, Entry: e, Version: "v0.0.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContract(t *testing.T) {
	t.Run("in the operator's process", func(t *testing.T) {
		providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.System {
			e := entry("sim")
			p := newProvider(t, e)
			s := system(t, p.api.(*World), e)
			s.Provider, s.Ephemeral = p, true
			return s
		}})
	})
	t.Run("over a socket", func(t *testing.T) {
		providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.System {
			e := entry("sim")
			e.Socket = socketPath(t)
			w := NewWorld(WorldOptions{})
			t.Cleanup(w.Close)
			serveWorld(t, e.Socket, w)
			s := system(t, w, e)
			s.Provider = newProvider(t, e)
			return s
		}})
	})
}

// system is what the two modes share: the World, wherever it is, can be reached into.
func system(t *testing.T, w *World, e config.Entry) providertest.System {
	port := freePort(t)
	at := func(uid string) key { return key{"sim-1", instanceName(cluster, uid)} }
	plant := func(name string, change func(*instance)) providertest.Decoy {
		return providertest.Decoy{Name: name, Plant: func(t *testing.T, uid string) func() string {
			i := &instance{
				key: at(uid), owner: Owner{Cluster: cluster, Entry: e.Name}, uid: uid, namespace: "theirs", proxyName: "theirs",
				shape: specOn(port, uid, "").Shape, started: w.clock.Now(), address: WrongExit,
			}
			change(i)
			attach(t, w, Owner{Cluster: cluster, Entry: e.Name}, e)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.instances[i.key] = i
			w.review(i)
			return func() string {
				w.mu.Lock()
				defer w.mu.Unlock()
				found := w.instances[i.key]
				seen, err := json.Marshal([]any{found.view(), found.owner, found.uid, found.retained, found == i})
				if err != nil {
					t.Fatal(err)
				}
				return string(seen)
			}
		}}
	}
	damage := func(name string, do func(*instance)) providertest.Damage {
		return providertest.Damage{Name: name, Do: func(_ *testing.T, uid string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			i := w.instances[at(uid)]
			do(i)
			w.review(i)
		}}
	}
	return providertest.System{
		Host:    "sim-1",
		Restart: func(t *testing.T) provider.Provider { return newProvider(t, e) },
		Spec:    func(uid string) provider.InstanceSpec { return specOn(port, uid, "shop-1") },
		Decoys: []providertest.Decoy{
			plant("another cluster's", func(i *instance) { i.owner.Cluster = "deadbeef" }),
			plant("another entry's", func(i *instance) { i.owner.Entry = "other" }),
			plant("another Proxy's", func(i *instance) { i.uid = uidB }),
		},
		Damage: []providertest.Damage{
			damage("shut down", func(i *instance) { i.over, i.overWhy = provider.StateStopped, "shut down by hand" }),
			damage("crashed", func(i *instance) { i.over, i.overWhy = provider.StateCrashed, "its port was taken" }),
		},
	}
}

func attach(t *testing.T, w *World, o Owner, e config.Entry) {
	t.Helper()
	d, err := describe(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Attach(t.Context(), o, d); err != nil {
		t.Fatal(err)
	}
}
