// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// World is a daemon of the contract, and what others do to its machine past it.
type World struct {
	// Connect connects anew at each call. The pool may hold other things, which stay.
	Connect func(*testing.T) libvirt.Backend
	// WriteFile puts a file of so many bytes into the pool's folder, and RemoveFile takes one away. The daemon is not told.
	WriteFile  func(t *testing.T, name string, size int64)
	RemoveFile func(t *testing.T, name string)
	// Suspend has somebody pause a running domain.
	Suspend func(t *testing.T, domain string)
	// Talk has the guest of a running domain with BIOS output on its console say something there, now or soon.
	Talk func(t *testing.T, domain string)
}

// contract is one run of the suite: every name in it is its own, and is removed at its end.
type contract struct {
	libvirt.Backend
	world  World
	prefix string
	virt   string
	arch   string
	caps   libvirtxml.DomainCaps
}

// Contract holds a Backend to what the steps rely on.
func Contract(t *testing.T, world World) {
	for _, c := range []struct {
		name string
		run  func(*contract, *testing.T)
	}{
		{"host and capabilities", (*contract).host},
		{"machine and pool by their UUIDs", (*contract).place},
		{"what is not there", (*contract).absent},
		{"volumes", (*contract).volumes},
		{"uploads", (*contract).uploads},
		{"uploads of zeros", (*contract).sparseUploads},
		{"an upload whose reader fails harms no other call", (*contract).brokenUpload},
		{"overlays", (*contract).overlays},
		{"the pool", (*contract).pool},
		{"M18: the pool's figures and its list are of the last refresh", (*contract).cachedPool},
		{"definitions", (*contract).definitions},
		{"M18: metadata by namespace", (*contract).metadata},
		{"M18: answers by their codes", (*contract).refusals},
		{"running and stopping", (*contract).running},
		{"paused", (*contract).paused},
		{"M18: metadata of a domain that is defined anew while it runs", (*contract).redefined},
		{"many domains in one call", (*contract).bulk},
		{"undefining a running domain", (*contract).transient},
		{"a disk that is gone", (*contract).missingDisk},
		{"L21: every call on an ended context ends alone, and does nothing", (*contract).endedContext},
		{"L21: an upload whose context ends meanwhile ends alone", (*contract).endedUpload},
		{"events", (*contract).events},
		{"events end with their connection", (*contract).eventsEnd},
		{"consoles", (*contract).consoles},
		{"what a guest says", (*contract).talk},
		{"a connection of its own", (*contract).dedicated},
		{"L22: every call after close", (*contract).closed},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newContract(t, world), t) })
	}
}

func newContract(t *testing.T, world World) *contract {
	t.Helper()
	b := world.Connect(t)
	unique := make([]byte, 4)
	_, _ = rand.Read(unique)
	c := &contract{Backend: b, world: world, prefix: fmt.Sprintf("egress-contract-%x-", unique), virt: "kvm"}
	t.Cleanup(b.Close)
	t.Cleanup(func() { c.sweep(t) })
	info, err := b.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.arch = info.Arch
	text, err := b.DomainCapabilities(t.Context(), c.virt, c.arch, "q35")
	if err != nil {
		c.virt = "qemu"
		text, err = b.DomainCapabilities(t.Context(), c.virt, c.arch, "q35")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.caps.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	return c
}

// sweep removes what carries this run's prefix.
func (c *contract) sweep(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	domains, err := c.Domains(ctx)
	if errors.Is(err, ErrClosed) {
		return
	}
	for _, d := range domains {
		if strings.HasPrefix(d.Name, c.prefix) {
			_ = c.Destroy(ctx, d.Name) // it may be off
			if d.Persistent {
				_ = c.Undefine(ctx, d.Name) // what is left shows in the lists of the host's owner
			}
		}
	}
	volumes, _ := c.Volumes(ctx)
	for _, v := range volumes {
		if strings.HasPrefix(v, c.prefix) {
			if err := c.DeleteVolume(ctx, v); err != nil {
				t.Errorf("volume %s is left: %v", v, err)
			}
		}
	}
}

func wantCode(t *testing.T, what string, err error, codes ...int) {
	t.Helper()
	if !slices.ContainsFunc(codes, func(code int) bool { return libvirt.IsCode(err, code) }) {
		t.Errorf("%s: got %v, want the daemon's answer %v", what, err, codes)
	}
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (c *contract) host(t *testing.T) {
	info, err := c.Host(t.Context())
	ok(t, "host", err)
	if info.Hostname == "" || info.UUID == "" || info.LibvirtVersion == 0 || info.FreeMemoryMiB <= 0 || info.CPUs <= 0 {
		t.Errorf("the host does not say enough of itself: %+v", info)
	}
	if c.caps.Arch != c.arch || c.caps.Devices == nil || c.caps.Devices.Disk == nil {
		t.Errorf("the capabilities do not say enough: %+v", c.caps)
	}
	_, err = c.DomainCapabilities(t.Context(), "xen", c.arch, "q35")
	wantCode(t, "capabilities of a type that is not there", err, libvirt.CodeInvalidArg, libvirt.CodeConfigUnsupported, libvirt.CodeNoSupport)
	_, err = c.DomainCapabilities(t.Context(), c.virt, c.arch, "no-such-machine")
	wantCode(t, "capabilities of a machine that is not there", err, libvirt.CodeInvalidArg)
}

// place is by what two hosts of a providers file are seen to be one.
func (c *contract) place(t *testing.T) {
	other, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	defer other.Close()
	look := func(b libvirt.Backend) [2]string {
		host, err := b.Host(t.Context())
		ok(t, "host", err)
		pool, err := b.Pool(t.Context(), false)
		ok(t, "pool", err)
		return [2]string{host.UUID, pool.UUID}
	}
	here := look(c)
	for _, text := range here {
		if id, err := uuid.Parse(text); err != nil || id == uuid.Nil {
			t.Errorf("%q is no UUID", text)
		}
	}
	if there := look(other); there != here {
		t.Errorf("over another connection it is %q, and not %q", there, here)
	}
}

func (c *contract) absent(t *testing.T) {
	ctx, name := t.Context(), c.prefix+"absent"
	_, err := c.Domain(ctx, name)
	wantCode(t, "Domain", err, libvirt.CodeNoDomain)
	_, err = c.DomainXML(ctx, name)
	wantCode(t, "DomainXML", err, libvirt.CodeNoDomain)
	_, err = c.LiveXML(t.Context(), name)
	wantCode(t, "LiveXML", err, libvirt.CodeNoDomain)
	_, err = c.Metadata(ctx, name, libvirt.MarkNamespace)
	wantCode(t, "Metadata", err, libvirt.CodeNoDomain)
	_, err = c.InterfaceAddresses(ctx, name, libvirt.SourceLease)
	wantCode(t, "InterfaceAddresses", err, libvirt.CodeNoDomain)
	_, err = c.Volume(ctx, name)
	wantCode(t, "Volume", err, libvirt.CodeNoVolume)
	for what, err := range map[string]error{
		"SetMetadata": c.SetMetadata(ctx, name, libvirt.MarkNamespace, "egress", "<instance/>"),
		"Start":       c.Start(ctx, name), "Resume": c.Resume(ctx, name), "Destroy": c.Destroy(ctx, name), "Undefine": c.Undefine(ctx, name),
	} {
		wantCode(t, what, err, libvirt.CodeNoDomain)
	}
	wantCode(t, "DeleteVolume", c.DeleteVolume(ctx, name), libvirt.CodeNoVolume)
	wantCode(t, "Upload", c.Upload(ctx, name, strings.NewReader("x"), 1), libvirt.CodeNoVolume)
	wantCode(t, "CheckNetwork", c.CheckNetwork(ctx, name), libvirt.CodeNoNetwork)
	if err := c.CheckBridge(ctx, "nosuchbr0"); err != nil {
		wantCode(t, "CheckBridge", err, libvirt.CodeNoInterface)
	}
}

func (c *contract) dedicated(t *testing.T) {
	other, err := c.Dedicated(t.Context())
	ok(t, "open", err)
	_, err = other.Pool(t.Context(), true)
	ok(t, "refresh over it", err)
	other.Close()
	if _, err := other.Volumes(t.Context()); err == nil {
		t.Error("it answers after its close")
	}
	_, err = c.Volumes(t.Context())
	ok(t, "the shared connection", err)
}
