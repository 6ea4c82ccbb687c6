// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"path"
	"time"
)

const (
	maxCapacity = 1 << 16
	// smallestBlock and largestBlock bound a simulated host's addresses, in bits of the network.
	smallestBlock = 32
	largestBlock  = 16
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

func (d *document) validateSimulated(at string, e *Entry) {
	d.needsHosts(at, e)
	d.validateSizes(at+".defaults", e.Defaults)
	if d.has(at + ".socket") {
		d.validateSocket(at+".socket", e.Socket, "the socket of egress-proxies simulator, such as /run/egress-proxies/simulator.sock")
	}
	for i, f := range e.Faults {
		here := item(at+".faults", i)
		if d.needs(here + ".fault") {
			d.validateFault(here+".fault", f.Fault)
		}
		if _, err := path.Match(f.Proxies, ""); err != nil {
			d.failf(here+".proxies", "must be the name of a Proxy, or a pattern such as shop-*: %s is neither", shown(f.Proxies))
		}
	}
	for i := range e.Hosts {
		d.validateSimulatedHost(item(at+".hosts", i), &e.Hosts[i])
	}
}

func (d *document) validateSimulatedHost(at string, h *Host) {
	if d.needs(at + ".addresses") {
		network, err := netip.ParsePrefix(h.Addresses)
		switch {
		case err != nil || !loopback.Contains(network.Addr()) || network.Bits() < loopback.Bits():
			d.failf(at+".addresses", "must be a network inside 127.0.0.0/8, such as 127.20.1.0/24: simulated instances listen on loopback addresses")
		case network.Masked() != network:
			d.failf(at+".addresses", "has bits set behind its mask: write %s", network.Masked())
		case network.Bits() < largestBlock || network.Bits() > smallestBlock:
			d.failf(at+".addresses", "must be a /%d to /%d", largestBlock, smallestBlock)
		}
	}
	d.inRange(at+".capacity", int64(h.Capacity), 1, maxCapacity)
	d.within(at+".bootTime", h.BootTime, 0, time.Hour)
	for i, f := range h.Faults {
		d.validateFault(item(at+".faults", i), f)
	}
}

func (d *document) validateFault(at, name string) { d.oneOf(at, name, FaultNames()...) }
