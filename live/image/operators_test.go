// SPDX-License-Identifier: Apache-2.0

//go:build live

package image

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// watched is a Backend that counts what it is told to delete and what is not its cluster's.
type watched struct {
	libvirt.Backend
	cluster string
	foreign *atomic.Int32
}

func (w *watched) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	own, err := w.Backend.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	return &watched{own, w.cluster, w.foreign}, nil
}

func (w *watched) note(name string) {
	if !strings.HasPrefix(name, libvirt.Prefix+"-"+w.cluster+"-") {
		w.foreign.Add(1)
	}
}

func (w *watched) DeleteVolume(ctx context.Context, name string) error {
	w.note(name)
	return w.Backend.DeleteVolume(ctx, name)
}

func (w *watched) Destroy(ctx context.Context, name string) error {
	w.note(name)
	return w.Backend.Destroy(ctx, name)
}

func (w *watched) Undefine(ctx context.Context, name string) error {
	w.note(name)
	return w.Backend.Undefine(ctx, name)
}

func TestTwoOperators(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	tiny, _, _ := kvmhost.Images(t)
	source := config.Image{URL: "file://" + tiny, SHA256: digestOf(read(t, tiny))}
	t.Run("H4: two operators fetch one image into one pool at once, cold", func(t *testing.T) {
		var foreign atomic.Int32
		var both [2]*operator
		for i := range both {
			cluster := newCluster(t, host)
			both[i] = operate(t, host, cluster, source, func(o *libvirt.Options) {
				backend := o.Backend
				o.Backend = func(h config.Host) libvirt.Backend { return &watched{backend(h), cluster, &foreign} }
			})
		}
		uids := [2]string{newUID(), newUID()}
		var made sync.WaitGroup
		for i, o := range both {
			made.Go(func() {
				if _, err := o.make(uids[i]); err != nil {
					t.Error(err)
				}
			})
		}
		made.Wait()
		booted := 0
		for i, o := range both {
			o.eventually("the guest to have an address", bootedWithin, func(ctx context.Context) bool {
				got, err := o.Get(ctx, provider.InstanceRef{Host: hostName, UID: uids[i]})
				return err == nil && len(got.Addresses) > 0
			})
			booted++
		}
		bases := map[string]bool{}
		for i, o := range both {
			base := o.backing(uids[i])
			bases[base] = true
			if o.sum(base) != source.SHA256 {
				t.Errorf("base %s is not the image", base)
			}
			if published := slices.Collect(maps.Keys(o.bases())); !slices.Equal(published, []string{base}) {
				t.Errorf("published are %q, and the guest is on %s", published, base)
			}
		}
		both[0].remove(uids[0])
		if base := both[1].backing(uids[1]); both[1].sum(base) != source.SHA256 || !both[1].runs(uids[1]) {
			t.Error("removing the one's guest harmed the other's")
		}
		both[1].remove(uids[1])
		fmt.Printf("figure: two operators: %d bases, %d guests booted, %d foreign deletes\n", len(bases), booted, foreign.Load())
		if len(bases) != 2 || foreign.Load() != 0 {
			t.Errorf("%d bases, %d foreign deletes", len(bases), foreign.Load())
		}
	})
	t.Run("H4: an alias of a host is found by the UUIDs of host and pool, takes nothing new, and keeps what it has", func(t *testing.T) {
		cluster := newCluster(t, host)
		entries := []config.Entry{{Name: "kvm2-first", Hosts: []config.Host{{Name: hostName}}}, {Name: "kvm2-second", Hosts: []config.Host{{Name: hostName}}}}
		places := libvirt.NewPlaces(entries)
		start := func(entry string) *operator {
			return operate(t, host, cluster, source, func(o *libvirt.Options) {
				o.Entry.Name, o.Places, o.CheckInterval = entry, places, time.Second
			})
		}
		is := func(o *operator, reason string) func(context.Context) bool {
			return func(context.Context) bool { return o.Hosts()[0].Reason == reason }
		}
		second := start("kvm2-second")
		second.eventually("nobody to know yet", madeWithin, is(second, provider.HostReady))
		had := newUID()
		second.mustMake(had)
		first := start("kvm2-first")
		second.eventually("the alias to be found", madeWithin, is(second, provider.HostDuplicate))
		first.eventually("the first of the file to keep the place", madeWithin, is(first, provider.HostReady))
		_, err := second.make(newUID())
		wantError(t, err, provider.Capacity, "host "+hostName+" of entry kvm2-first", "take one of the two out of the providers file")
		uid := newUID()
		first.mustMake(uid)
		if !second.runs(had) || !first.runs(uid) {
			t.Error("an instance does not run")
		}
		first.remove(uid)
		second.remove(had)
	})
}
