// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// seed builds the seed in memory. Only the spec can make it fail.
func (c *creation) seed(hypervisors []netip.Prefix) ([]byte, error) {
	s := cloudinit.SeedSpec{
		UID: c.uid, Name: c.spec.Name, Software: cloudinit.Software(c.spec.Software), UserData: []byte(c.spec.UserData.Reveal()),
		EntryUserData: []byte(c.entry.UserData), VendorData: []byte(c.entry.VendorData), InstallGuestAgent: c.entry.InstallGuestAgent,
	}
	if c.spec.Software == provider.SoftwareAgent {
		config, err := c.agentConfig(hypervisors).Marshal()
		if err != nil {
			return nil, fmt.Errorf("the agent's configuration: %w", err)
		}
		s.AgentConfig = config
	}
	if nic := c.spec.NIC; len(nic.Addresses) > 0 {
		s.Network = &cloudinit.Network{MAC: c.mac(), Addresses: nic.Addresses, Gateways: nic.Gateways, Nameservers: nic.Nameservers}
	}
	return cloudinit.Seed(s)
}

func (c *creation) agentConfig(hypervisors []netip.Prefix) agentapi.Config {
	config := agentapi.Config{
		Version: agentapi.ConfigVersion, ListenPort: c.spec.Port,
		Credentials: []agentapi.Credential{{
			Username: c.spec.Credentials.Username, Password: c.spec.Credentials.Password.Reveal(),
		}},
		Destinations: agentapi.Destinations{Allow: c.entry.Destinations.Prefixes(), Deny: hypervisors, Reflectors: c.reflectors},
	}
	// A key of the wrong length stays zero, which Marshal refuses.
	if key := c.spec.ControlKey.Reveal(); len(key) == len(config.ControlKey) {
		copy(config.ControlKey[:], key)
	}
	return config
}

func ownAddresses() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ip := p.Addr().Unmap().WithZone("")
			all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return all, nil
}

// hypervisors are the addresses of the entry's hosts. Agents refuse them, the public ones too: a request from a guest comes from behind what
// guards its host from the outside. Those of a local host are this machine's own.
func (c *creation) hypervisors(ctx context.Context) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, h := range c.entry.Hosts {
		if h.Local {
			own, err := ownAddresses()
			if err != nil {
				return nil, &provider.Error{Host: h.Name, Message: "the addresses of this machine have to be known, so that guests can be kept from them", Err: err}
			}
			all = append(all, own...)
			continue
		}
		name, _, err := net.SplitHostPort(h.DialAddress())
		if err != nil {
			name = h.DialAddress()
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name) // an address is its own answer
		if err != nil {
			return nil, &provider.Error{
				Host: h.Name, Message: fmt.Sprintf("its address %s has to be known, so that guests can be kept from it, and the name cannot be resolved", name),
				Next: "check the operator's name server, or write the address into the providers file", Err: err,
			}
		}
		for _, a := range addresses {
			a = a.Unmap().WithZone("")
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all, nil
}
