// SPDX-License-Identifier: Apache-2.0

//go:build live

package freeze

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// calls are what the operator asks a host, with their times.
type calls struct {
	mu  sync.Mutex
	all []*call
}

type call struct {
	what string // the method
	// dedicated: over a link of its own.
	dedicated  bool
	begin, end time.Time // end is zero while it is under way
	err        error
}

func (c *calls) begin(what string, dedicated bool) (end func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := &call{what: what, dedicated: dedicated, begin: time.Now()}
	c.all = append(c.all, one)
	return func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		one.end, one.err = time.Now(), err
	}
}

// underWay at a time are copies of the calls that had begun and had not ended.
func (c *calls) underWay(at time.Time, dedicated bool) (some []call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.dedicated == dedicated && one.begin.Before(at) && (one.end.IsZero() || one.end.After(at)) {
			some = append(some, *one)
		}
	}
	return some
}

// recorder is a Backend whose calls are noted: those that a host without instances is asked.
type recorder struct {
	libvirt.Backend
	calls     *calls
	dedicated bool
}

func record[T any](r recorder, what string, f func() (T, error)) (T, error) {
	end := r.calls.begin(what, r.dedicated)
	v, err := f()
	end(err)
	return v, err
}

func (r recorder) do(what string, f func() error) error {
	_, err := record(r, what, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (r recorder) Host(ctx context.Context) (libvirt.HostInfo, error) {
	return record(r, "Host", func() (libvirt.HostInfo, error) { return r.Backend.Host(ctx) })
}

func (r recorder) DomainCapabilities(ctx context.Context, virtType, arch, machine string) (string, error) {
	return record(r, "DomainCapabilities", func() (string, error) { return r.Backend.DomainCapabilities(ctx, virtType, arch, machine) })
}

func (r recorder) CheckNetwork(ctx context.Context, name string) error {
	return r.do("CheckNetwork", func() error { return r.Backend.CheckNetwork(ctx, name) })
}

func (r recorder) Pool(ctx context.Context, refresh bool) (libvirt.PoolInfo, error) {
	return record(r, "Pool", func() (libvirt.PoolInfo, error) { return r.Backend.Pool(ctx, refresh) })
}

func (r recorder) Volumes(ctx context.Context) ([]string, error) {
	return record(r, "Volumes", func() ([]string, error) { return r.Backend.Volumes(ctx) })
}

func (r recorder) Volume(ctx context.Context, name string) (libvirt.VolumeInfo, error) {
	return record(r, "Volume", func() (libvirt.VolumeInfo, error) { return r.Backend.Volume(ctx, name) })
}

func (r recorder) Domains(ctx context.Context) ([]libvirt.DomainInfo, error) {
	return record(r, "Domains", func() ([]libvirt.DomainInfo, error) { return r.Backend.Domains(ctx) })
}

func (r recorder) Domain(ctx context.Context, name string) (libvirt.DomainInfo, error) {
	return record(r, "Domain", func() (libvirt.DomainInfo, error) { return r.Backend.Domain(ctx, name) })
}

func (r recorder) CreateVolume(ctx context.Context, xml string) error {
	return r.do("CreateVolume", func() error { return r.Backend.CreateVolume(ctx, xml) })
}

func (r recorder) Upload(ctx context.Context, name string, from io.Reader, length int64) error {
	return r.do("Upload", func() error { return r.Backend.Upload(ctx, name, from, length) })
}

func (r recorder) DeleteVolume(ctx context.Context, name string) error {
	return r.do("DeleteVolume", func() error { return r.Backend.DeleteVolume(ctx, name) })
}

func (r recorder) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	own, err := r.Backend.Dedicated(ctx)
	if err != nil {
		return nil, err
	}
	return recorder{own, r.calls, true}, nil
}
