// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/simulated"
)

// simulator serves a World of its own, as a process beside the operator does.
func simulator(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "simulator.sock")
	listener, err := simulated.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	world := simulated.NewWorld(simulated.WorldOptions{})
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := simulated.Serve(ctx, listener, world); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		serving.Wait()
		world.Close()
	})
	return socket
}

// simulatedEntry is a provider of a simulated entry, once it knows its host.
func simulatedEntry(t *testing.T, socket, name string) *simulated.Provider {
	t.Helper()
	p, err := simulated.New(simulated.Options{Cluster: "0123456789ab", Entry: config.Entry{
		Name: name, Type: config.TypeSimulated, Socket: socket, Hosts: []config.Host{{Name: "h1", Addresses: "127.21.7.0/24", Capacity: 50}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	deadline, tick := time.Now().Add(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !p.Hosts()[0].Ready {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", p.Hosts())
		}
		<-tick.C
	}
	return p
}

func TestTheCollectorInASimulatedWorld(t *testing.T) {
	socket := simulator(t)
	home, other := simulatedEntry(t, socket, "home"), simulatedEntry(t, socket, "other")
	plant := func(p *simulated.Provider, n int) {
		t.Helper()
		_, err := p.Create(t.Context(), provider.InstanceSpec{
			InstanceRef: provider.InstanceRef{Host: "h1", UID: uidOf(n)}, Namespace: "team", Name: "shop",
			Shape:       provider.Shape{VCPUs: 1, MemoryMiB: 512, DiskSizeGiB: 4, Software: provider.SoftwareAgent, Port: 31000 + n},
			Credentials: provider.Credentials{Username: "u", Password: provider.NewSecret("p")}, ControlKey: provider.NewSecret(string(make([]byte, 32))),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newStage(t, 0, 0)
	s.Providers = func() map[string]provider.Provider { return map[string]provider.Provider{"home": home} }
	for n := range 4 {
		plant(home, n)
	}
	plant(other, 8)
	if err := home.Retain(t.Context(), provider.InstanceRef{Host: "h1", UID: uidOf(1)}); err != nil {
		t.Fatal(err)
	}
	s.proxies = []Proxy{
		{UID: uidOf(2), Name: "p2", Entry: "home", Host: "h1", Provisioned: s.now.Add(-time.Minute)},
		{UID: uidOf(3), Name: "p3", Entry: "home", Host: "h1", Provisioned: s.now.Add(-time.Minute)},
	}
	s.pass(0)
	s.pass(s.Grace)
	orphan := "egress-0123456789ab-sim-" + provider.CompactUID(uidOf(0))
	s.want("seen home: foreign 1, stopped false", "seen home: foreign 1, stopped false", "collected home/h1 "+orphan+" dry=false")
	if all, err := home.List(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := other.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the other entry's: %+v, %v", all, err)
	}
	if err := home.Delete(t.Context(), provider.InstanceRef{Host: "h1", UID: uidOf(3)}); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Minute)
	s.want("vanished home/h1: p3", "woken home "+uidOf(3), "seen home: foreign 1, stopped false")
}
