// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"errors"
	"net/netip"

	"go.yaml.in/yaml/v3"
)

// Network is how the guest's one NIC is set up where there is no DHCP.
type Network struct {
	// MAC by which the guest knows the NIC.
	MAC string
	// Addresses with the length of their network's prefix, one of each family at most.
	Addresses []netip.Prefix
	// Gateways of the default routes, one of each family at most.
	Gateways []netip.Addr
	// Nameservers that the guest asks.
	Nameservers []netip.Addr
}

type networkConfig struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]ethernet `yaml:"ethernets"`
}

// ethernet has no set-name: cloud-init finds the NIC by its MAC, whatever the guest calls it.
type ethernet struct {
	Match struct {
		MAC string `yaml:"macaddress"`
	} `yaml:"match"`
	DHCP4       bool         `yaml:"dhcp4"`
	DHCP6       bool         `yaml:"dhcp6"`
	AcceptRA    *bool        `yaml:"accept-ra,omitempty"`
	Addresses   []string     `yaml:"addresses"`
	Routes      []route      `yaml:"routes,omitempty"`
	Nameservers *nameservers `yaml:"nameservers,omitempty"`
}

type route struct {
	To  string `yaml:"to"`
	Via string `yaml:"via"`
}

type nameservers struct {
	Addresses []string `yaml:"addresses"`
}

// config is cloud-init's network configuration, version 2.
func (n Network) config() ([]byte, error) {
	if n.MAC == "" || len(n.Addresses) == 0 {
		return nil, errors.New("network: a MAC and an address are needed")
	}
	nic := ethernet{}
	nic.Match.MAC = n.MAC
	for _, address := range n.Addresses {
		nic.Addresses = append(nic.Addresses, address.String())
		if address.Addr().Is6() {
			nic.AcceptRA = new(bool) // a second address, and another exit, would come of one
		}
	}
	for _, gateway := range n.Gateways {
		to := "0.0.0.0/0" // older versions do not know the word default
		if gateway.Is6() {
			to = "::/0"
		}
		nic.Routes = append(nic.Routes, route{to, gateway.String()})
	}
	if len(n.Nameservers) > 0 {
		nic.Nameservers = &nameservers{}
		for _, server := range n.Nameservers {
			nic.Nameservers.Addresses = append(nic.Nameservers.Addresses, server.String())
		}
	}
	return yaml.Marshal(networkConfig{Version: 2, Ethernets: map[string]ethernet{"eth0": nic}})
}
