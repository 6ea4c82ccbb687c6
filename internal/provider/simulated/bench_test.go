// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"testing"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// BenchmarkThousandInstances makes, reads and deletes a thousand instances over a socket.
func BenchmarkThousandInstances(b *testing.B) {
	const count = 1000
	w := NewWorld(WorldOptions{})
	defer w.Close()
	e := config.Entry{Name: "sim", Socket: b.TempDir() + "/s", Hosts: []config.Host{{Name: "sim-1", Addresses: "127.21.0.0/20", Capacity: count}}}
	listener, err := Listen(b.Context(), e.Socket)
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- Serve(b.Context(), listener, w) }()
	p, err := New(Options{Cluster: cluster, Entry: e})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		refs := make([]provider.InstanceRef, count)
		for i := range refs {
			spec := specOn(38127, uuid.NewString(), "shop")
			if _, err := p.Create(b.Context(), spec); err != nil {
				b.Fatal(err)
			}
			refs[i] = spec.InstanceRef
		}
		if all, err := p.List(b.Context()); err != nil || len(all) != count {
			b.Fatalf("%d, %v", len(all), err)
		}
		for _, ref := range refs {
			if err := p.Delete(b.Context(), ref); err != nil {
				b.Fatal(err)
			}
		}
	}
	p.Close()
	w.Close()
	_ = listener.Close()
	<-served
}
