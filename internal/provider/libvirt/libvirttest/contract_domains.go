// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func (c *contract) domain(name, id, disk, metadata string) string {
	d := libvirtxml.Domain{
		Type: c.virt, Name: name, UUID: id, Memory: &libvirtxml.DomainMemory{Value: 64, Unit: "MiB"}, VCPU: &libvirtxml.DomainVCPU{Value: 1},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm", Arch: c.arch, Machine: "q35"}}, Devices: &libvirtxml.DomainDeviceList{},
	}
	if disk != "" {
		d.Devices.Disks = []libvirtxml.DomainDisk{{
			Device: "disk", Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
			Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk}},
			Target: &libvirtxml.DomainDiskTarget{Dev: "vda", Bus: "virtio"},
		}}
	}
	if metadata != "" {
		d.Metadata = &libvirtxml.DomainMetadata{XML: metadata}
	}
	text, err := d.Marshal()
	if err != nil {
		return err.Error() // which the daemon will refuse
	}
	return text
}

func (c *contract) definitions(t *testing.T) {
	name, id := c.prefix+"d", uuid.NewString()
	ok(t, "define", c.Define(t.Context(), c.domain(name, id, "", "")))
	info, err := c.Domain(t.Context(), name)
	ok(t, "look", err)
	if want := (libvirt.DomainInfo{Name: name, UUID: id, State: 5, Persistent: true}); info != want {
		t.Errorf("got %+v, want %+v", info, want)
	}
	ok(t, "define again: same name, same UUID", c.Define(t.Context(), c.domain(name, id, "", "")))
	wantCode(t, "same name, another UUID", c.Define(t.Context(), c.domain(name, uuid.NewString(), "", "")), libvirt.CodeOperationFailed)
	wantCode(t, "another name, same UUID", c.Define(t.Context(), c.domain(name+"x", id, "", "")), libvirt.CodeOperationFailed)
	wantCode(t, "what is no XML", c.Define(t.Context(), "<domain"), libvirt.CodeXMLDetail)
	// 92 where the Backend has the daemon validate.
	wantCode(t, "no name", c.Define(t.Context(), "<domain type='"+c.virt+"'/>"), libvirt.CodeXMLError, 92)
	all, err := c.Domains(t.Context())
	ok(t, "list", err)
	if !slices.Contains(all, info) {
		t.Errorf("%+v is not in %+v", info, all)
	}
	text, err := c.DomainXML(t.Context(), name)
	ok(t, "XML", err)
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil || d.UUID != id {
		t.Errorf("got %q, %v", text, err)
	}
	text, err = c.LiveXML(t.Context(), name)
	ok(t, "live XML of what is off", err)
	if err := d.Unmarshal(text); err != nil || d.UUID != id {
		t.Errorf("got %q, %v", text, err)
	}
	wantCode(t, "destroy what is off", c.Destroy(t.Context(), name), libvirt.CodeOperationInvalid)
	_, err = c.InterfaceAddresses(t.Context(), name, libvirt.SourceAgent)
	wantCode(t, "addresses of what is off", err, libvirt.CodeOperationInvalid)
	ok(t, "undefine", c.Undefine(t.Context(), name))
	_, err = c.Domain(t.Context(), name)
	wantCode(t, "look after undefine", err, libvirt.CodeNoDomain)
}

func (c *contract) metadata(t *testing.T) {
	const foreign = "https://example.org/foreign"
	name := c.prefix + "m"
	mark := libvirt.Mark{Cluster: "contract", Entry: "kvm2-home", UID: uuid.NewString(), Namespace: "a", Name: `<&"'>` + "\n", Volumes: []string{"v1", "v2"}}
	element, err := mark.Element()
	ok(t, "encode", err)
	ok(t, "define", c.Define(t.Context(), c.domain(name, uuid.NewString(), "", element+`<f:note xmlns:f="`+foreign+`" k="v">x</f:note>`)))
	read := func() (libvirt.Mark, error) {
		text, err := c.Metadata(t.Context(), name, libvirt.MarkNamespace)
		if err != nil {
			return libvirt.Mark{}, err
		}
		return libvirt.DecodeMark(text)
	}
	got, err := read()
	if err != nil || got.UID != mark.UID || got.Name != mark.Name || !slices.Equal(got.Volumes, mark.Volumes) {
		t.Errorf("got %+v, %v; want %+v", got, err, mark)
	}
	before, err := c.Metadata(t.Context(), name, foreign)
	ok(t, "foreign metadata", err)
	_, err = c.Metadata(t.Context(), name, "https://example.org/absent")
	wantCode(t, "another namespace", err, libvirt.CodeNoMetadata)
	mark.Retained = true
	bare, err := mark.Bare()
	ok(t, "encode", err)
	ok(t, "set", c.SetMetadata(t.Context(), name, libvirt.MarkNamespace, "egress", bare))
	if got, err = read(); err != nil || !got.Retained || got.Name != mark.Name {
		t.Errorf("after setting it: %+v, %v", got, err)
	}
	if after, err := c.Metadata(t.Context(), name, foreign); err != nil || after != before {
		t.Errorf("foreign metadata changed: %q, %v; was %q", after, err, before)
	}
	if text, err := c.DomainXML(t.Context(), name); err != nil || !strings.Contains(text, libvirt.MarkNamespace) || !strings.Contains(text, foreign) {
		t.Errorf("the definition lost metadata: %q, %v", text, err)
	}
}

func (c *contract) runningDomain(t *testing.T, suffix string) string {
	t.Helper()
	name := c.prefix + suffix
	c.makeVolume(t, name+".img", "raw", 1<<20, "")
	ok(t, "define", c.Define(t.Context(), c.domain(name, uuid.NewString(), c.info(t, name+".img").Path, "")))
	ok(t, "start", c.Start(t.Context(), name))
	info, err := c.Domain(t.Context(), name)
	ok(t, "look", err)
	if info.State != 1 || !info.Persistent {
		t.Fatalf("after the start: %+v", info)
	}
	return name
}

func (c *contract) running(t *testing.T) {
	name := c.runningDomain(t, "r")
	wantCode(t, "start again", c.Start(t.Context(), name), libvirt.CodeOperationInvalid)
	wantCode(t, "resume what runs", c.Resume(t.Context(), name), libvirt.CodeOperationInvalid)
	if addresses, err := c.InterfaceAddresses(t.Context(), name, libvirt.SourceAgent); err == nil {
		t.Errorf("a guest agent answers in a guest without one: %+v", addresses)
	} else if answer := (*libvirt.DaemonError)(nil); !errors.As(err, &answer) {
		t.Errorf("got %v, want an answer of the daemon", err)
	}
	ok(t, "set metadata", c.SetMetadata(t.Context(), name, libvirt.MarkNamespace, "egress", "<instance version='7'/>"))
	ok(t, "destroy", c.Destroy(t.Context(), name))
	if info, err := c.Domain(t.Context(), name); err != nil || info.State != 5 || info.Reason != 2 {
		t.Errorf("after destroy: %+v, %v", info, err)
	}
	if text, err := c.Metadata(t.Context(), name, libvirt.MarkNamespace); err != nil || !strings.Contains(text, `version=`) {
		t.Errorf("metadata that was set while it ran is gone: %q, %v", text, err)
	}
	ok(t, "start once more", c.Start(t.Context(), name))
}

func (c *contract) transient(t *testing.T) {
	name := c.runningDomain(t, "t")
	ok(t, "undefine", c.Undefine(t.Context(), name))
	if info, err := c.Domain(t.Context(), name); err != nil || info.State != 1 || info.Persistent {
		t.Errorf("after undefine: %+v, %v", info, err)
	}
	wantCode(t, "undefine again", c.Undefine(t.Context(), name), libvirt.CodeOperationInvalid)
	ok(t, "destroy", c.Destroy(t.Context(), name))
	_, err := c.Domain(t.Context(), name)
	wantCode(t, "look after destroy", err, libvirt.CodeNoDomain)
}

func (c *contract) missingDisk(t *testing.T) {
	name := c.prefix + "g"
	c.makeVolume(t, name+".img", "raw", 1<<20, "")
	path := c.info(t, name+".img").Path
	ok(t, "define", c.Define(t.Context(), c.domain(name, uuid.NewString(), path, "")))
	ok(t, "delete the disk", c.DeleteVolume(t.Context(), name+".img"))
	wantCode(t, "start", c.Start(t.Context(), name), libvirt.CodeSystemError)
	if info, err := c.Domain(t.Context(), name); err != nil || info.State != 5 {
		t.Errorf("after a failed start: %+v, %v", info, err)
	}
}
