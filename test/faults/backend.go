// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"io"
	"reflect"
	"regexp"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// BackendMethods are the methods of a libvirt.Backend, whatever there are.
func BackendMethods() []string {
	var all []string
	for m := range reflect.TypeFor[libvirt.Backend]().Methods() {
		all = append(all, m.Name)
	}
	return all
}

// link is a Backend through which every call passes the injector. A method of the interface that is missing here is not recorded, and so the
// matrix fails for it.
type link struct {
	libvirt.Backend
	life *Life
	host string
	// cut ends with the link; the shared one is made anew by the next call, a dedicated one is dead then.
	cut       context.Context
	dedicated bool
}

// Backend is an operator's way to a host.
func (l *Life) Backend(host string, to libvirt.Backend) libvirt.Backend {
	return &link{Backend: to, life: l, host: host, cut: context.Background()}
}

// do makes one call. It ends when the link breaks.
func (b *link) do(ctx context.Context, method, object string, effect func(context.Context) error) error {
	if b.cut.Err() != nil {
		return context.Cause(b.cut)
	}
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	b.life.injector.link(b.host, end)
	err := b.life.do(ctx, call{to: b.host, method: method, object: object}, func() error { return effect(inner) })
	if cause := context.Cause(inner); err != nil && ctx.Err() == nil && cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// ask is do for a call with an answer.
func ask[T any](ctx context.Context, b *link, method, object string, effect func(context.Context) (T, error)) (answer T, err error) {
	err = b.do(ctx, method, object, func(ctx context.Context) (err error) {
		answer, err = effect(ctx)
		return err
	})
	if err != nil {
		var nothing T
		return nothing, err
	}
	return answer, nil
}

func (b *link) Host(ctx context.Context) (libvirt.HostInfo, error) {
	return ask(ctx, b, "Host", "", b.Backend.Host)
}

func (b *link) DomainCapabilities(ctx context.Context, virtType, arch, machine string) (string, error) {
	return ask(ctx, b, "DomainCapabilities", virtType, func(ctx context.Context) (string, error) {
		return b.Backend.DomainCapabilities(ctx, virtType, arch, machine)
	})
}

func (b *link) CheckNetwork(ctx context.Context, name string) error {
	return b.do(ctx, "CheckNetwork", name, func(ctx context.Context) error { return b.Backend.CheckNetwork(ctx, name) })
}

func (b *link) CheckBridge(ctx context.Context, name string) error {
	return b.do(ctx, "CheckBridge", name, func(ctx context.Context) error { return b.Backend.CheckBridge(ctx, name) })
}

func (b *link) Pool(ctx context.Context, refresh bool) (libvirt.PoolInfo, error) {
	method := "Pool"
	if refresh {
		method = "Pool-refresh"
	}
	return ask(ctx, b, method, "", func(ctx context.Context) (libvirt.PoolInfo, error) { return b.Backend.Pool(ctx, refresh) })
}

func (b *link) StartPool(ctx context.Context) error {
	return b.do(ctx, "StartPool", "", b.Backend.StartPool)
}

func (b *link) Volumes(ctx context.Context) ([]string, error) {
	return ask(ctx, b, "Volumes", "", b.Backend.Volumes)
}

func (b *link) Volume(ctx context.Context, name string) (libvirt.VolumeInfo, error) {
	return ask(ctx, b, "Volume", name, func(ctx context.Context) (libvirt.VolumeInfo, error) { return b.Backend.Volume(ctx, name) })
}

func (b *link) CreateVolume(ctx context.Context, xml string) error {
	return b.do(ctx, "CreateVolume", nameIn(xml), func(ctx context.Context) error { return b.Backend.CreateVolume(ctx, xml) })
}

func (b *link) DeleteVolume(ctx context.Context, name string) error {
	return b.do(ctx, "DeleteVolume", name, func(ctx context.Context) error { return b.Backend.DeleteVolume(ctx, name) })
}

// Upload is three steps: before it, in its middle, and at its end.
func (b *link) Upload(ctx context.Context, name string, r io.Reader, length int64) error {
	middle := &middle{Reader: r, left: length / 2, at: func() error {
		return b.do(ctx, "Upload-middle", name, func(context.Context) error { return nil })
	}}
	return b.do(ctx, "Upload", name, func(ctx context.Context) error { return b.Backend.Upload(ctx, name, middle, length) })
}

// middle calls at, once, when half of what is to be read was read.
type middle struct {
	io.Reader
	left int64
	at   func() error
}

func (m *middle) Read(p []byte) (int, error) {
	if m.left == 0 && m.at != nil {
		at := m.at
		m.at = nil
		if err := at(); err != nil {
			return 0, err
		}
	}
	if m.left > 0 && int64(len(p)) > m.left {
		p = p[:m.left]
	}
	n, err := m.Reader.Read(p)
	if m.left -= int64(n); m.left < 0 {
		m.left = 0
	}
	return n, err
}

func (b *link) Domains(ctx context.Context) ([]libvirt.DomainInfo, error) {
	return ask(ctx, b, "Domains", "", b.Backend.Domains)
}

func (b *link) Domain(ctx context.Context, name string) (libvirt.DomainInfo, error) {
	return ask(ctx, b, "Domain", name, func(ctx context.Context) (libvirt.DomainInfo, error) { return b.Backend.Domain(ctx, name) })
}

func (b *link) DomainXML(ctx context.Context, name string) (string, error) {
	return ask(ctx, b, "DomainXML", name, func(ctx context.Context) (string, error) { return b.Backend.DomainXML(ctx, name) })
}

func (b *link) LiveXML(ctx context.Context, name string) (string, error) {
	return ask(ctx, b, "LiveXML", name, func(ctx context.Context) (string, error) { return b.Backend.LiveXML(ctx, name) })
}

func (b *link) Metadata(ctx context.Context, name, namespaceURI string) (string, error) {
	return ask(ctx, b, "Metadata", name, func(ctx context.Context) (string, error) { return b.Backend.Metadata(ctx, name, namespaceURI) })
}

func (b *link) SetMetadata(ctx context.Context, name, namespaceURI, key, xml string) error {
	return b.do(ctx, "SetMetadata", name, func(ctx context.Context) error { return b.Backend.SetMetadata(ctx, name, namespaceURI, key, xml) })
}

func (b *link) Define(ctx context.Context, xml string) error {
	return b.do(ctx, "Define", nameIn(xml), func(ctx context.Context) error { return b.Backend.Define(ctx, xml) })
}

func (b *link) Start(ctx context.Context, name string) error {
	return b.do(ctx, "Start", name, func(ctx context.Context) error { return b.Backend.Start(ctx, name) })
}

func (b *link) Resume(ctx context.Context, name string) error {
	return b.do(ctx, "Resume", name, func(ctx context.Context) error { return b.Backend.Resume(ctx, name) })
}

func (b *link) Destroy(ctx context.Context, name string) error {
	return b.do(ctx, "Destroy", name, func(ctx context.Context) error { return b.Backend.Destroy(ctx, name) })
}

func (b *link) Undefine(ctx context.Context, name string) error {
	return b.do(ctx, "Undefine", name, func(ctx context.Context) error { return b.Backend.Undefine(ctx, name) })
}

func (b *link) InterfaceAddresses(ctx context.Context, name string, source libvirt.AddressSource) ([]libvirt.Interface, error) {
	return ask(ctx, b, "InterfaceAddresses", name, func(ctx context.Context) ([]libvirt.Interface, error) {
		return b.Backend.InterfaceAddresses(ctx, name, source)
	})
}

// Dedicated is a link of its own, which does not come back once it was cut.
func (b *link) Dedicated(ctx context.Context) (libvirt.Backend, error) {
	inner, err := ask(ctx, b, "Dedicated", "", b.Backend.Dedicated)
	if err != nil {
		return nil, err
	}
	cut, end := context.WithCancelCause(context.Background())
	b.life.injector.link(b.host, end)
	return &link{Backend: inner, life: b.life, host: b.host, cut: cut, dedicated: true}, nil
}

// Events can fail as it begins, and as its link breaks. It is no call that anything waits for.
func (b *link) Events(ctx context.Context, notify func(domain string)) error {
	return b.lasts(ctx, "Events", "", func(ctx context.Context) error { return b.Backend.Events(ctx, notify) })
}

// Console is like Events.
func (b *link) Console(ctx context.Context, name string, sink func([]byte)) error {
	return b.lasts(ctx, "Console", name, func(ctx context.Context) error { return b.Backend.Console(ctx, name, sink) })
}

// lasts is a call that goes on until its link breaks.
func (b *link) lasts(ctx context.Context, method, object string, effect func(context.Context) error) error {
	if b.cut.Err() != nil {
		return context.Cause(b.cut)
	}
	if err := b.life.do(ctx, call{to: b.host, method: method, object: object, lasting: true}, func() error { return nil }); err != nil {
		return err
	}
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	b.life.injector.link(b.host, end)
	stop := context.AfterFunc(b.cut, func() { end(context.Cause(b.cut)) })
	defer stop()
	err := effect(inner)
	if cause := context.Cause(inner); ctx.Err() == nil && cause != nil {
		return cause
	}
	return err
}

// Close of a dedicated link is a step; that of the shared one is the operator's own end.
func (b *link) Close() {
	if !b.dedicated {
		b.Backend.Close()
		return
	}
	_ = b.life.do(context.Background(), call{to: b.host, method: "Close", closing: true}, func() error {
		b.Backend.Close()
		return nil
	}) // there is nobody to tell
}

var nameElement = regexp.MustCompile(`<name>([^<]*)</name>`)

// nameIn is the name in the XML of a volume or a domain.
func nameIn(xml string) string {
	if m := nameElement.FindStringSubmatch(xml); m != nil {
		return m[1]
	}
	return ""
}

// refusal is an error of the daemon, or of the API server, that says nothing special.
func refusal(c call) error {
	if c.to == api {
		return errRefused
	}
	return &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "internal error: " + c.method + " did not work this time"}
}
