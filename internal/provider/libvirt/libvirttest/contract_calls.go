// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// each calls every method of a Backend but Close, about one domain and one volume that may be there. What would make one makes another.
func (c *contract) each(ctx context.Context, t *testing.T, b libvirt.Backend, name string, judge func(method string, err error)) {
	t.Helper()
	quiet := func([]byte) {}
	failed := func(_ any, err error) error { return err }
	calls := map[string]func() error{
		"Host":               func() error { return failed(b.Host(ctx)) },
		"DomainCapabilities": func() error { return failed(b.DomainCapabilities(ctx, c.virt, c.arch, "q35")) },
		"CheckNetwork":       func() error { return b.CheckNetwork(ctx, name) },
		"CheckBridge":        func() error { return b.CheckBridge(ctx, "nosuchbr0") },
		"Pool":               func() error { return failed(b.Pool(ctx, true)) },
		"StartPool":          func() error { return b.StartPool(ctx) },
		"Volumes":            func() error { return failed(b.Volumes(ctx)) },
		"Volume":             func() error { return failed(b.Volume(ctx, name+".img")) },
		"CreateVolume": func() error {
			return b.CreateVolume(ctx, "<volume><name>"+name+"-new.img</name><capacity>1</capacity></volume>")
		},
		"Upload":             func() error { return b.Upload(ctx, name+".img", strings.NewReader("x"), 1) },
		"DeleteVolume":       func() error { return b.DeleteVolume(ctx, name+".img") },
		"Domains":            func() error { return failed(b.Domains(ctx)) },
		"Domain":             func() error { return failed(b.Domain(ctx, name)) },
		"DomainXML":          func() error { return failed(b.DomainXML(ctx, name)) },
		"LiveXML":            func() error { return failed(b.LiveXML(ctx, name)) },
		"Metadata":           func() error { return failed(b.Metadata(ctx, name, libvirt.MarkNamespace)) },
		"SetMetadata":        func() error { return b.SetMetadata(ctx, name, libvirt.MarkNamespace, "egress", "<instance/>") },
		"Define":             func() error { return b.Define(ctx, c.domain(name+"-new", uuid.NewString(), "", "")) },
		"Start":              func() error { return b.Start(ctx, name) },
		"Resume":             func() error { return b.Resume(ctx, name) },
		"Destroy":            func() error { return b.Destroy(ctx, name) },
		"Undefine":           func() error { return b.Undefine(ctx, name) },
		"InterfaceAddresses": func() error { return failed(b.InterfaceAddresses(ctx, name, libvirt.SourceLease)) },
		"Events":             func() error { return b.Events(ctx, func(string) {}) },
		"Console":            func() error { return b.Console(ctx, name, quiet) },
		"Dedicated": func() error {
			own, err := b.Dedicated(ctx)
			if err == nil {
				own.Close()
			}
			return err
		},
	}
	for _, method := range slices.Collect(methods(reflect.TypeFor[libvirt.Backend]())) {
		call, known := calls[method]
		switch {
		case method == "Close":
		case !known:
			t.Errorf("the suite does not know the method %s", method)
		default:
			judge(method, call())
		}
	}
}

func methods(of reflect.Type) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for m := range of.Methods() {
			if !yield(m.Name) {
				return
			}
		}
	}
}

// untouched makes a domain and a volume, and returns a check that they are as they were, and nothing else is there.
func (c *contract) untouched(t *testing.T, suffix string) (name string, check func(t *testing.T)) {
	t.Helper()
	name = c.prefix + suffix
	c.makeVolume(t, name+".img", "raw", 4096, "")
	ok(t, "define", c.Define(t.Context(), c.domain(name, uuid.NewString(), c.info(t, name+".img").Path, "")))
	look := func() (all []any) {
		t.Helper()
		text, err := c.DomainXML(t.Context(), name)
		ok(t, "XML", err)
		domain, err := c.Domain(t.Context(), name)
		ok(t, "look", err)
		return []any{text, domain, c.info(t, name+".img")}
	}
	before := look()
	return name, func(t *testing.T) {
		t.Helper()
		if now := look(); !reflect.DeepEqual(now, before) {
			t.Errorf("it is %+v, and was %+v", now, before)
		}
		_, err := c.Domain(t.Context(), name+"-new")
		wantCode(t, "another domain", err, libvirt.CodeNoDomain)
		_, err = c.Volume(t.Context(), name+"-new.img")
		wantCode(t, "another volume", err, libvirt.CodeNoVolume)
	}
}

func (c *contract) endedContext(t *testing.T) {
	name, check := c.untouched(t, "ended")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var answer *libvirt.DaemonError
	c.each(ended, t, c.Backend, name, func(method string, err error) {
		if !errors.Is(err, context.Canceled) || errors.As(err, &answer) {
			t.Errorf("%s: got %v, want the context's own error", method, err)
		}
	})
	check(t)
}

// endless gives bytes until its context ends, and says when the first were taken.
type endless struct {
	ctx   context.Context
	began chan struct{}
	given bool
}

func (r *endless) Read(p []byte) (int, error) {
	if !r.given {
		r.given = true
		close(r.began)
		return len(p), nil
	}
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

func (c *contract) endedUpload(t *testing.T) {
	name := c.prefix + "eu.img"
	c.makeVolume(t, name, "raw", 4<<20, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &endless{ctx: ctx, began: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- c.Upload(ctx, name, r, 4<<20) }()
	<-r.began
	cancel()
	var answer *libvirt.DaemonError
	if err := <-done; !errors.Is(err, context.Canceled) || errors.As(err, &answer) {
		t.Errorf("got %v, want the context's own error", err)
	}
	ok(t, "delete", c.DeleteVolume(t.Context(), name))
}

// shortUploads are those that the suite's other uploads are not: of nothing, and of less than was promised.
func (c *contract) shortUploads(t *testing.T) {
	name := c.prefix + "short.img"
	c.makeVolume(t, name, "raw", 1<<20, "")
	var answer *libvirt.DaemonError
	if err := c.Upload(t.Context(), name, strings.NewReader(""), 0); err == nil || errors.As(err, &answer) {
		t.Errorf("of nothing: got %v, want an error that the daemon was not asked for", err)
	}
	if err := c.Upload(t.Context(), name, strings.NewReader("less"), 1<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of less than promised: got %v, want the end that came too early", err)
	}
	ok(t, "delete", c.DeleteVolume(t.Context(), name))
}

func (c *contract) closed(t *testing.T) {
	name, check := c.untouched(t, "closed")
	own, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	again := c.world.Connect(t)
	_, err = again.Domains(t.Context()) // it dials with its first call
	ok(t, "list", err)
	for what, b := range map[string]libvirt.Backend{"a connection of its own": own, "the shared one": again} {
		b.Close()
		b.Close()
		var answer *libvirt.DaemonError
		c.each(t.Context(), t, b, name, func(method string, err error) {
			if err == nil || errors.As(err, &answer) {
				t.Errorf("%s over %s: got %v, want an error that says nothing of the host", method, what, err)
			}
		})
	}
	check(t)
}
