// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"context"
	"net/netip"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Domains lists all domains in one call, with their states in a second.
func (b *backend) Domains(ctx context.Context) ([]libvirt.DomainInfo, error) {
	return call(ctx, b, func(c *golibvirt.Libvirt) ([]libvirt.DomainInfo, error) {
		persistent, _, err := c.ConnectListAllDomains(1, golibvirt.ConnectListDomainsPersistent)
		if err != nil {
			return nil, err
		}
		defined := make(map[golibvirt.UUID]bool, len(persistent))
		for _, d := range persistent {
			defined[d.UUID] = true
		}
		// The bulk call without a list of domains speaks of all of them.
		records, err := c.ConnectGetAllDomainStats(nil, uint32(golibvirt.DomainStatsState), 0)
		if err != nil {
			return nil, err
		}
		domains := make([]libvirt.DomainInfo, 0, len(records))
		for _, r := range records {
			info := describe(r.Dom)
			info.Persistent = defined[r.Dom.UUID]
			for _, p := range r.Params {
				value, ok := p.Value.I.(int32)
				switch {
				case p.Field == "state.state" && ok:
					info.State = int(value)
				case p.Field == "state.reason" && ok:
					info.Reason = int(value)
				}
			}
			domains = append(domains, info)
		}
		return domains, nil
	})
}

func describe(d golibvirt.Domain) libvirt.DomainInfo {
	return libvirt.DomainInfo{Name: d.Name, UUID: uuid.UUID(d.UUID).String(), Run: int(max(d.ID, 0))}
}

// withDomain runs f with a domain's handle.
func withDomain[T any](ctx context.Context, b *backend, name string, f func(*golibvirt.Libvirt, golibvirt.Domain) (T, error)) (T, error) {
	return call(ctx, b, func(c *golibvirt.Libvirt) (T, error) {
		d, err := c.DomainLookupByName(name)
		if err != nil {
			var none T
			return none, err
		}
		return f(c, d)
	})
}

// onDomain is withDomain for an f without a result.
func onDomain(ctx context.Context, b *backend, name string, f func(*golibvirt.Libvirt, golibvirt.Domain) error) error {
	_, err := withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) (struct{}, error) { return struct{}{}, f(c, d) })
	return err
}

// Domain describes one domain.
func (b *backend) Domain(ctx context.Context, name string) (libvirt.DomainInfo, error) {
	return withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) (libvirt.DomainInfo, error) {
		info := describe(d)
		state, reason, err := c.DomainGetState(d, 0)
		if err != nil {
			return info, err
		}
		persistent, err := c.DomainIsPersistent(d)
		info.State, info.Reason, info.Persistent = int(state), int(reason), persistent != 0
		return info, err
	})
}

// DomainXML is the domain's persistent XML; that of the live one where it is transient.
func (b *backend) DomainXML(ctx context.Context, name string) (string, error) {
	return withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) (string, error) {
		return c.DomainGetXMLDesc(d, golibvirt.DomainXMLInactive)
	})
}

// LiveXML is the domain's XML as it runs.
func (b *backend) LiveXML(ctx context.Context, name string) (string, error) {
	return withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) (string, error) {
		return c.DomainGetXMLDesc(d, 0)
	})
}

// Metadata is the element of a namespace in a domain's metadata.
func (b *backend) Metadata(ctx context.Context, name, namespaceURI string) (string, error) {
	return withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) (string, error) {
		return c.DomainGetMetadata(d, int32(golibvirt.DomainMetadataElement), optional(namespaceURI), golibvirt.DomainAffectCurrent)
	})
}

// SetMetadata replaces that element, in the definition and in the running domain.
func (b *backend) SetMetadata(ctx context.Context, name, namespaceURI, key, xml string) error {
	return onDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) error {
		flags := golibvirt.DomainAffectConfig
		active, err := c.DomainIsActive(d)
		if err != nil {
			return err
		}
		if active != 0 {
			flags |= golibvirt.DomainAffectLive
		}
		return c.DomainSetMetadata(d, int32(golibvirt.DomainMetadataElement), optional(xml), optional(key), optional(namespaceURI), flags)
	})
}

// Define makes or replaces a persistent domain, checked against libvirt's schema.
func (b *backend) Define(ctx context.Context, xml string) error {
	return do(ctx, b, func(c *golibvirt.Libvirt) error {
		_, err := c.DomainDefineXMLFlags(xml, golibvirt.DomainDefineValidate)
		return err
	})
}

// Start starts a domain; a saved state is discarded, for it would bring old memory back over a newer disk.
func (b *backend) Start(ctx context.Context, name string) error {
	return onDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) error {
		_, err := c.DomainCreateWithFlags(d, uint32(golibvirt.DomainStartForceBoot))
		return err
	})
}

// Resume lets a paused domain run on; one that its guest suspended has a call of its own.
func (b *backend) Resume(ctx context.Context, name string) error {
	return onDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) error {
		state, _, err := c.DomainGetState(d, 0)
		if err != nil {
			return err
		}
		if golibvirt.DomainState(state) == golibvirt.DomainPmsuspended {
			return c.DomainPmWakeup(d, 0)
		}
		return c.DomainResume(d)
	})
}

// Destroy ends a running domain at once.
func (b *backend) Destroy(ctx context.Context, name string) error {
	return onDomain(ctx, b, name, (*golibvirt.Libvirt).DomainDestroy)
}

// Versions of libvirt from which on a daemon knows an undefine flag; it rejects those that it does not know.
const (
	versionCheckpoints = 5_006_000
	versionTPM         = 8_009_000
)

// undefineFlags are all that a daemon of this version knows, and that take something away.
func undefineFlags(version uint64) golibvirt.DomainUndefineFlagsValues {
	flags := golibvirt.DomainUndefineManagedSave | golibvirt.DomainUndefineSnapshotsMetadata | golibvirt.DomainUndefineNvram
	if version >= versionCheckpoints {
		flags |= golibvirt.DomainUndefineCheckpointsMetadata
	}
	if version >= versionTPM {
		flags |= golibvirt.DomainUndefineTpm
	}
	return flags
}

// Undefine removes a domain's definition with all that the daemon keeps beside it.
func (b *backend) Undefine(ctx context.Context, name string) error {
	known, err := b.known(ctx)
	if err != nil {
		return err
	}
	return onDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) error {
		return c.DomainUndefineFlags(d, undefineFlags(known.version))
	})
}

// agentSeconds is how long a guest's agent may take to answer.
const agentSeconds = 3

// InterfaceAddresses are a running domain's addresses as one source knows them.
func (b *backend) InterfaceAddresses(ctx context.Context, name string, source libvirt.AddressSource) ([]libvirt.Interface, error) {
	raw, err := withDomain(ctx, b, name, func(c *golibvirt.Libvirt, d golibvirt.Domain) ([]golibvirt.DomainInterface, error) {
		if source == libvirt.SourceAgent {
			// By default the daemon waits for ever for a guest's agent that went silent within a command. A daemon older than 5.10 does
			// not know this call; ours has a time of its own then.
			_, _ = c.DomainAgentSetResponseTimeout(d, agentSeconds, 0)
		}
		return c.DomainInterfaceAddresses(d, uint32(source), 0)
	})
	if err != nil {
		return nil, err
	}
	interfaces := make([]libvirt.Interface, 0, len(raw))
	for _, r := range raw {
		i := libvirt.Interface{Name: r.Name}
		if len(r.Hwaddr) > 0 {
			i.MAC = strings.ToLower(r.Hwaddr[0])
		}
		for _, a := range r.Addrs {
			// The guest's agent may say anything: what is no address is left out.
			if ip, err := netip.ParseAddr(a.Addr); err == nil {
				i.Addresses = append(i.Addresses, ip.Unmap())
			}
		}
		interfaces = append(interfaces, i)
	}
	return interfaces, nil
}
