// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// changed is a domain's definition with something else in it.
func (c *contract) changed(t *testing.T, name string, change func(*libvirtxml.Domain)) string {
	t.Helper()
	var d libvirtxml.Domain
	ok(t, "describe", d.Unmarshal(c.domain(name, uuid.NewString(), "", "")))
	change(&d)
	text, err := d.Marshal()
	ok(t, "describe", err)
	return text
}

// wantText holds an answer to what is read in it where its code says too little.
func wantText(t *testing.T, what string, err error, pattern string) {
	t.Helper()
	var answer *libvirt.DaemonError
	if !errors.As(err, &answer) || !regexp.MustCompile(pattern).MatchString(answer.Message) {
		t.Errorf("%s: got %v, want an answer that says %s", what, err, pattern)
	}
}

// refusals are answers that decide what becomes of a Proxy.
func (c *contract) refusals(t *testing.T) {
	nic := func(source libvirtxml.DomainInterfaceSource) func(*libvirtxml.Domain) {
		return func(d *libvirtxml.Domain) {
			d.Devices.Interfaces = []libvirtxml.DomainInterface{{Source: &source, Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"}}}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*libvirtxml.Domain)
		code   int
		says   string
	}{
		{"a network that is not there", nic(libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: "nosuchnet"}}), libvirt.CodeNoNetwork, "nosuchnet"},
		{"a bridge that is not there", nic(libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: "nosuchbr0"}}), libvirt.CodeSystemError, "(?i)cannot get interface mtu"},
		{"more memory than there is", func(d *libvirtxml.Domain) { d.Memory.Value = 1 << 28 }, libvirt.CodeInternal, "(?i)cannot set up guest memory"},
	} {
		name := c.prefix + "refused"
		ok(t, "define", c.Define(t.Context(), c.changed(t, name, test.change)))
		err := c.Start(t.Context(), name)
		wantCode(t, test.name, err, test.code)
		wantText(t, test.name, err, test.says)
		if info, err := c.Domain(t.Context(), name); err != nil || info.State != 5 || info.Run != 0 {
			t.Errorf("%s: after the failed start: %+v, %v", test.name, info, err)
		}
		ok(t, "undefine", c.Undefine(t.Context(), name))
	}
	id, name := uuid.NewString(), c.prefix+"refused"
	ok(t, "define", c.Define(t.Context(), c.domain(name, id, "", "")))
	wantText(t, "a UUID that is taken", c.Define(t.Context(), c.domain(name+"x", id, "", "")), "(?i)already (exists|defined) with uuid")
	wantCode(t, "metadata that is no XML", c.SetMetadata(t.Context(), name, libvirt.MarkNamespace, "egress", "<instance"), libvirt.CodeXMLDetail)
	_, err := c.InterfaceAddresses(t.Context(), name, libvirt.SourceLease)
	wantCode(t, "leases of what is off", err, libvirt.CodeOperationInvalid)
	wantCode(t, "resume what is off", c.Resume(t.Context(), name), libvirt.CodeOperationInvalid)
	c.shortUploads(t)
}

func (c *contract) paused(t *testing.T) {
	l := listen(t, c.Backend)
	name := c.runningDomain(t, "p")
	before, err := c.Domain(t.Context(), name)
	ok(t, "look", err)
	c.world.Suspend(t, name)
	info, err := c.Domain(t.Context(), name)
	ok(t, "look", err)
	if want := (libvirt.DomainInfo{Name: name, UUID: before.UUID, State: 3, Reason: 1, Persistent: true, Run: before.Run}); info != want {
		t.Errorf("paused: %+v, want %+v", info, want)
	}
	wantCode(t, "start what is paused", c.Start(t.Context(), name), libvirt.CodeOperationInvalid)
	if all, err := c.Domains(t.Context()); err != nil || !slices.Contains(all, info) {
		t.Errorf("%+v is not in %+v, %v", info, all, err)
	}
	l.rest()
	ok(t, "resume", c.Resume(t.Context(), name))
	l.hears(t, "resume", name)
	if info, err := c.Domain(t.Context(), name); err != nil || info.State != 1 || info.Reason != 5 || info.Run != before.Run {
		t.Errorf("resumed: %+v, %v; it had run %d", info, err, before.Run)
	}
	l.rest()
	c.world.Suspend(t, name)
	l.hears(t, "that somebody paused it", name)
	ok(t, "destroy what is paused", c.Destroy(t.Context(), name))
}

// redefined is a domain with one definition and another life.
func (c *contract) redefined(t *testing.T) {
	name := c.runningDomain(t, "re")
	first, err := c.DomainXML(t.Context(), name)
	ok(t, "XML", err)
	var d libvirtxml.Domain
	ok(t, "read", d.Unmarshal(first))
	d.Metadata = &libvirtxml.DomainMetadata{XML: `<instance xmlns="` + libvirt.MarkNamespace + `" version="7"/>`}
	text, err := d.Marshal()
	ok(t, "describe", err)
	ok(t, "define again", c.Define(t.Context(), text))
	_, err = c.Metadata(t.Context(), name, libvirt.MarkNamespace)
	wantCode(t, "metadata as it runs", err, libvirt.CodeNoMetadata)
	if text, err := c.DomainXML(t.Context(), name); err != nil || !strings.Contains(text, libvirt.MarkNamespace) {
		t.Errorf("the definition: %q, %v", text, err)
	}
	if text, err := c.LiveXML(t.Context(), name); err != nil || strings.Contains(text, libvirt.MarkNamespace) {
		t.Errorf("as it runs: %q, %v", text, err)
	}
	ok(t, "destroy", c.Destroy(t.Context(), name))
	if text, err := c.Metadata(t.Context(), name, libvirt.MarkNamespace); err != nil || !strings.Contains(text, "version=") {
		t.Errorf("metadata once it is off: %q, %v", text, err)
	}
}

// bulk holds the call about all domains to that about one.
func (c *contract) bulk(t *testing.T) {
	off, on, bare := c.prefix+"off", c.runningDomain(t, "on"), c.runningDomain(t, "bare")
	ok(t, "define", c.Define(t.Context(), c.domain(off, uuid.NewString(), "", "")))
	ok(t, "undefine what runs", c.Undefine(t.Context(), bare))
	runs := map[int]bool{}
	for range 2 {
		all, err := c.Domains(t.Context())
		ok(t, "list", err)
		for _, name := range []string{off, on, bare} {
			one, err := c.Domain(t.Context(), name)
			ok(t, "look", err)
			if !slices.Contains(all, one) {
				t.Errorf("%+v is not in %+v", one, all)
			}
			if name == on {
				runs[one.Run] = true
			}
		}
		if addresses, err := c.InterfaceAddresses(t.Context(), on, libvirt.SourceLease); err != nil || len(addresses) != 0 {
			t.Errorf("leases of a guest without a NIC: %+v, %v", addresses, err)
		}
		ok(t, "destroy", c.Destroy(t.Context(), on))
		ok(t, "start anew", c.Start(t.Context(), on))
	}
	if len(runs) != 2 || runs[0] {
		t.Errorf("two starts are told from each other by their numbers, and have %v", runs)
	}
}
