// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// States that the daemon reports (virDomainState), with the reasons used here.
const (
	stateRunning, reasonBooted    = 1, 1
	statePaused, reasonUnpaused   = 3, 5
	stateShutoff, reasonDestroyed = 5, 2
	stateSuspended                = 7
)

type domain struct {
	definition
	was           *definition // how it runs, where it was defined anew since it started
	state, reason int
	persistent    bool
	run           int
	console       func([]byte)  // its reader; nil for none
	off           chan struct{} // closed when the reader's guest goes off
	live          string        // what its live XML shows beyond its definition
	addresses     map[libvirt.AddressSource]answer
	opened        map[string]*volume // the files that its guest has open, by path
}

type definition struct {
	def      libvirtxml.Domain
	metadata map[string]string // element without its namespace, by namespace
}

type answer struct {
	interfaces []libvirt.Interface
	err        error
}

// current is how a domain runs, or its definition where it is off.
func (dom *domain) current() *definition {
	if dom.was != nil {
		return dom.was
	}
	return &dom.definition
}

// xml is the definition with its metadata.
func (d *definition) xml() string {
	def := d.def
	def.Metadata = nil
	if len(d.metadata) > 0 {
		var all strings.Builder
		for _, ns := range slices.Sorted(maps.Keys(d.metadata)) {
			all.WriteString(withNamespace(d.metadata[ns], ns))
		}
		def.Metadata = &libvirtxml.DomainMetadata{XML: all.String()}
	}
	text, err := def.Marshal()
	if err != nil {
		return err.Error()
	}
	return text
}

// AddDomain defines a domain of somebody else's.
func (d *Daemon) AddDomain(name, id string, running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := &domain{
		definition: definition{libvirtxml.Domain{Type: "kvm", Name: name, UUID: cmp.Or(id, uuid.NewString())}, map[string]string{}},
		state:      stateShutoff, persistent: true,
	}
	d.domains[name] = dom
	if running {
		d.runs++
		dom.state, dom.reason, dom.run = stateRunning, reasonBooted, d.runs
	}
}

// DefineXML makes a domain of somebody else's as its XML says.
func (d *Daemon) DefineXML(text string) error { return d.Backend().Define(context.Background(), text) }

// ShowLive has the live XML of a domain, and not its definition, show text: a disk that was plugged in, or what backs one.
func (d *Daemon) ShowLive(name, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.domains[name].live = text
}

// RemoveDomain removes a domain behind everybody's back.
func (d *Daemon) RemoveDomain(name string) {
	defer d.ears.tell(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.domains[name].goOff()
	delete(d.domains, name)
}

// SetState sets what a domain is up to.
func (d *Daemon) SetState(name string, state, reason int) {
	defer d.ears.tell(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[name]
	dom.state, dom.reason = state, reason
	switch {
	case state == stateShutoff:
		dom.run = 0
		dom.goOff()
	case dom.run == 0:
		d.runs++
		dom.run = d.runs
	}
}

// SetAddresses sets what a source answers. Of an agent that comes or goes the daemon tells; of leases and of the host's table it does not.
func (d *Daemon) SetAddresses(name string, source libvirt.AddressSource, interfaces []libvirt.Interface, err error) {
	if source == libvirt.SourceAgent {
		defer d.ears.tell(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[name]
	if dom.addresses == nil {
		dom.addresses = map[libvirt.AddressSource]answer{}
	}
	dom.addresses[source] = answer{interfaces, err}
}

// DomainNames are the domains that exist.
func (d *Daemon) DomainNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.domains))
}

func (d *Daemon) domain(name string) (*domain, error) {
	dom := d.domains[name]
	if dom == nil {
		return nil, fail(libvirt.CodeNoDomain, "Domain not found: no domain with matching name '%s'", name)
	}
	return dom, nil
}

func (d *Daemon) info(name string, dom *domain) libvirt.DomainInfo {
	return libvirt.DomainInfo{Name: name, UUID: dom.def.UUID, State: dom.state, Reason: dom.reason, Persistent: dom.persistent, Run: dom.run}
}

// changing is onDomain for a call that the daemon tells everybody of. Whoever listens has heard it before the caller has its answer.
func (b *Backend) changing(ctx context.Context, method, name string, effect func(d *Daemon, dom *domain) error) error {
	changed := false
	err := b.onDomain(ctx, method, name, func(d *Daemon, dom *domain) error {
		err := effect(d, dom)
		changed = err == nil
		return err
	})
	if changed {
		b.daemon.ears.tell(name)
	}
	return err
}

// onDomain is a call about one domain.
func (b *Backend) onDomain(ctx context.Context, method, name string, effect func(d *Daemon, dom *domain) error) error {
	return b.call(ctx, method, name, func() error {
		dom, err := b.daemon.domain(name)
		if err != nil {
			return err
		}
		return effect(b.daemon, dom)
	})
}

// Domains lists all.
func (b *Backend) Domains(ctx context.Context) (all []libvirt.DomainInfo, err error) {
	d := b.daemon
	err = b.call(ctx, "Domains", "", func() error {
		for _, name := range slices.Sorted(maps.Keys(d.domains)) {
			all = append(all, d.info(name, d.domains[name]))
		}
		return nil
	})
	return all, err
}

// Domain describes one.
func (b *Backend) Domain(ctx context.Context, name string) (info libvirt.DomainInfo, err error) {
	err = b.onDomain(ctx, "Domain", name, func(d *Daemon, dom *domain) error {
		info = d.info(name, dom)
		return nil
	})
	return info, err
}

// DomainXML is its definition.
func (b *Backend) DomainXML(ctx context.Context, name string) (text string, err error) {
	err = b.onDomain(ctx, "DomainXML", name, func(_ *Daemon, dom *domain) error {
		text = dom.xml()
		return nil
	})
	return text, err
}

// LiveXML is how it runs, with what ShowLive added.
func (b *Backend) LiveXML(ctx context.Context, name string) (text string, err error) {
	err = b.onDomain(ctx, "LiveXML", name, func(_ *Daemon, dom *domain) error {
		text = dom.liveXML()
		return nil
	})
	return text, err
}

// liveXML is how it runs, with what is shown beyond it among the devices, or at the end where there are none.
func (dom *domain) liveXML() string {
	text := dom.current().xml()
	for _, end := range []string{"</devices>", "</domain>"} {
		if before, after, ok := strings.Cut(text, end); ok {
			return before + dom.live + end + after
		}
	}
	return text
}

// Metadata is one element of it, without its namespace, as the daemon gives it.
func (b *Backend) Metadata(ctx context.Context, name, namespaceURI string) (element string, err error) {
	err = b.onDomain(ctx, "Metadata", name, func(_ *Daemon, dom *domain) error {
		var ok bool
		if element, ok = dom.current().metadata[namespaceURI]; !ok {
			return fail(libvirt.CodeNoMetadata, "metadata not found: Requested metadata element is not present")
		}
		return nil
	})
	return element, err
}

// SetMetadata replaces one element.
func (b *Backend) SetMetadata(ctx context.Context, name, namespaceURI, _, element string) error {
	return b.changing(ctx, "SetMetadata", name, func(_ *Daemon, dom *domain) error {
		elements, err := splitElements(element)
		if err != nil || len(elements) != 1 {
			return fail(libvirt.CodeXMLDetail, "(metadata_xml):1: %v", err)
		}
		dom.metadata[namespaceURI], dom.current().metadata[namespaceURI] = elements[0].bare, elements[0].bare
		return nil
	})
}

// Define makes or replaces a domain, by the daemon's rules about names and UUIDs.
func (b *Backend) Define(ctx context.Context, text string) error {
	var def libvirtxml.Domain
	parseErr := def.Unmarshal(text)
	defined := false
	err := b.call(ctx, "Define", def.Name, func() error {
		d := b.daemon
		switch {
		case parseErr != nil:
			return fail(libvirt.CodeXMLDetail, "(domain_definition):1: %v", parseErr)
		case def.Name == "", strings.Contains(def.Title, "\n"):
			return fail(libvirt.CodeXMLError, "XML error: no name, or a title of two lines")
		case def.Type == "kvm" && d.cfg.NoKVM:
			return fail(libvirt.CodeConfigUnsupported, "unsupported configuration: Emulator '/usr/bin/qemu-system-x86_64' does not support virt type 'kvm'")
		}
		def.UUID = cmp.Or(def.UUID, uuid.NewString())
		for name, other := range d.domains {
			if name == def.Name && other.def.UUID != def.UUID {
				return fail(libvirt.CodeOperationFailed, "operation failed: domain '%s' already exists with uuid %s", name, other.def.UUID)
			}
			if name != def.Name && other.def.UUID == def.UUID {
				return fail(libvirt.CodeOperationFailed, "operation failed: domain '%s' is already defined with uuid %s", name, other.def.UUID)
			}
		}
		metadata, err := metadataOf(def)
		if err != nil {
			return fail(libvirt.CodeXMLError, "XML error: %v", err)
		}
		dom := d.domains[def.Name]
		if dom == nil {
			dom = &domain{state: stateShutoff}
			d.domains[def.Name] = dom
		}
		if dom.state != stateShutoff && dom.was == nil {
			before := dom.definition
			dom.was = &before
		}
		dom.definition, dom.persistent = definition{def, metadata}, true
		defined = true
		return nil
	})
	if defined {
		b.daemon.ears.tell(def.Name)
	}
	return err
}

// Start starts a domain whose disks and network are there.
func (b *Backend) Start(ctx context.Context, name string) error {
	return b.changing(ctx, "Start", name, func(d *Daemon, dom *domain) error {
		if dom.state != stateShutoff {
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: domain is already running")
		}
		if err := d.startable(dom.def); err != nil {
			return err
		}
		d.runs++
		dom.state, dom.reason, dom.run = stateRunning, reasonBooted, d.runs
		dom.opened = d.filesOf(dom.def)
		return nil
	})
}

func (d *Daemon) startable(def libvirtxml.Domain) error {
	if m := def.Memory; m != nil && m.Unit == "MiB" && int64(m.Value) > d.cfg.FreeMemoryMiB {
		return fail(libvirt.CodeInternal, "internal error: process exited while connecting to monitor: cannot set up guest memory 'pc.ram': Cannot allocate memory")
	}
	if def.Devices == nil {
		return nil
	}
	for _, disk := range def.Devices.Disks {
		if s := disk.Source; s != nil && s.File != nil && !d.fileExists(s.File.File) {
			return fail(libvirt.CodeSystemError, "Cannot access storage file '%s': No such file or directory", s.File.File)
		}
	}
	for _, nic := range def.Devices.Interfaces {
		if s := nic.Source; s != nil && s.Network != nil && !slices.Contains(d.cfg.Networks, s.Network.Network) {
			return fail(libvirt.CodeNoNetwork, "Network not found: no network with matching name '%s'", s.Network.Network)
		}
		if s := nic.Source; s != nil && s.Bridge != nil && !slices.Contains(d.cfg.Bridges, s.Bridge.Bridge) {
			return fail(libvirt.CodeSystemError, "Cannot get interface MTU on '%s': No such device", s.Bridge.Bridge)
		}
	}
	return nil
}

// Resume lets a paused domain run on, and wakes a suspended one.
func (b *Backend) Resume(ctx context.Context, name string) error {
	return b.changing(ctx, "Resume", name, func(_ *Daemon, dom *domain) error {
		if dom.state != statePaused && dom.state != stateSuspended {
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: domain is not paused")
		}
		dom.state, dom.reason = stateRunning, reasonUnpaused
		return nil
	})
}

// Destroy ends a domain that is not off; a transient one is gone then.
func (b *Backend) Destroy(ctx context.Context, name string) error {
	return b.changing(ctx, "Destroy", name, func(d *Daemon, dom *domain) error {
		if dom.state == stateShutoff {
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: domain is not running")
		}
		dom.state, dom.reason, dom.run, dom.addresses = stateShutoff, reasonDestroyed, 0, nil
		dom.goOff()
		if !dom.persistent {
			delete(d.domains, name)
		}
		return nil
	})
}

// Undefine removes a definition; a running domain lives on without it.
func (b *Backend) Undefine(ctx context.Context, name string) error {
	return b.changing(ctx, "Undefine", name, func(d *Daemon, dom *domain) error {
		if !dom.persistent {
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: cannot undefine transient domain")
		}
		dom.persistent = false
		if dom.state == stateShutoff {
			delete(d.domains, name)
		}
		return nil
	})
}

// InterfaceAddresses answers what was set; without that there is no guest agent, and no lease.
func (b *Backend) InterfaceAddresses(ctx context.Context, name string, source libvirt.AddressSource) (all []libvirt.Interface, err error) {
	err = b.onDomain(ctx, "InterfaceAddresses", name, func(_ *Daemon, dom *domain) error {
		if dom.state == stateShutoff {
			return fail(libvirt.CodeOperationInvalid, "Requested operation is not valid: domain is not running")
		}
		set, ok := dom.addresses[source]
		if !ok && source == libvirt.SourceAgent {
			return fail(libvirt.CodeAgentUnresponsive, "Guest agent is not responding: QEMU guest agent is not connected")
		}
		all = slices.Clone(set.interfaces)
		return set.err
	})
	return all, err
}
