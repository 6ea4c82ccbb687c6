// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const (
	ours = "ours"
	// image halts in its boot sector.
	image = "empty"
	// parallel is how many instances a tool works on at a time: as many as the operator does.
	parallel = 10
	// suppliedWithin is the time for the base and the agent to get to the host.
	suppliedWithin = 2 * time.Minute
)

// provided is our provider, with its link to the host open and the base and the agent published there.
type provided struct {
	*libvirt.Provider
	names libvirt.Names
	made  []provider.InstanceRef

	mu     sync.Mutex
	called []string   // the calls to libvirt since make began
	calls  [][]string // of each single Create
	start  time.Duration
	starts []time.Duration // what libvirt took for the start in each single Create
}

// stopwatch says how long the daemon takes to start a domain.
type stopwatch struct {
	libvirt.Backend
	of *provided
}

func (w stopwatch) Start(ctx context.Context, name string) error {
	begun := time.Now()
	err := w.Backend.Start(ctx, name)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.start = time.Since(begun)
	return err
}

func (*provided) name() string { return ours }

func newOurs(ctx context.Context, host *kvmhost.Host) (*provided, error) {
	images, err := kvmhost.BuildImages(ctx)
	if err != nil {
		return nil, err
	}
	o := &provided{}
	if o.names, err = libvirt.NewNames("benchcreate"); err != nil {
		return nil, err
	}
	entry := lab.EntryOf(host, "kvm2-bench", image, config.Image{URL: "file://" + images.Empty})
	backends := kvm2.CountedBackends(entry.Credentials, o.count)
	o.Provider, err = libvirt.New(libvirt.Options{
		Cluster: o.names.Cluster(), Entry: entry, Agent: libvirttest.Agent,
		Backend: func(h config.Host) libvirt.Backend { return stopwatch{backends(h), o} },
	})
	if err != nil {
		return nil, err
	}
	// The first one waits for what every later one finds.
	first := spec(uuid.NewString())
	o.made = append(o.made, first.InstanceRef)
	err = lab.Until(ctx, suppliedWithin, "the base and the agent to be on the host", func(ctx context.Context) (bool, error) {
		_, err := o.Create(ctx, first)
		if provider.KindOf(err) == provider.InProgress {
			return false, nil
		}
		return err == nil, err
	})
	if err = errors.Join(err, o.remove(ctx)); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *provided) close() { o.Close() }

func (o *provided) count(_, procedure string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.called = append(o.called, procedure)
}

// counted are the calls since it was last asked.
func (o *provided) counted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	called := o.called
	o.called = nil
	return called
}

func spec(uid string) provider.InstanceSpec { return libvirttest.Spec(lab.EntryHost, uid, image) }

func (o *provided) make(ctx context.Context, n int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	specs := make([]provider.InstanceSpec, n)
	for i := range specs {
		specs[i] = spec(uuid.NewString())
		o.made = append(o.made, specs[i].InstanceRef)
	}
	o.counted()
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range specs {
		g.Go(func() error {
			_, err := o.Create(ctx, specs[i])
			took[i] = time.Since(start)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if n == 1 {
		o.calls, o.starts = append(o.calls, o.counted()), append(o.starts, o.start)
	}
	return took, nil
}

func (o *provided) remove(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, ref := range o.made {
		g.Go(func() error {
			if err := o.Delete(ctx, ref); err != nil && !provider.IsNotFound(err) {
				return fmt.Errorf("delete: %w", err)
			}
			return nil
		})
	}
	o.made = nil
	return g.Wait()
}
