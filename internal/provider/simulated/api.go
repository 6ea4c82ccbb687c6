// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"net/netip"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// API is what a World does for its users, in this process or over a socket. Its errors are *provider.Error.
type API interface {
	// Attach describes an entry's hosts. Hosts that do not exist are made; of those that do, the description is renewed. Every other
	// call of an Owner that is not attached fails with ReasonNotAttached.
	Attach(ctx context.Context, o Owner, d Description) error
	// Create, Get, Delete, Retain and List are as those of provider.Provider.
	Create(ctx context.Context, o Owner, spec provider.InstanceSpec) (provider.Instance, error)
	Get(ctx context.Context, o Owner, ref provider.InstanceRef) (provider.Instance, error)
	Delete(ctx context.Context, o Owner, ref provider.InstanceRef) error
	Retain(ctx context.Context, o Owner, ref provider.InstanceRef) error
	List(ctx context.Context, o Owner) ([]provider.Instance, error)
	// Leftovers and Reclaim are as those of provider.SpaceReclaimer.
	Leftovers(ctx context.Context, o Owner, host string) ([]provider.Leftover, error)
	Reclaim(ctx context.Context, o Owner, host string, chosen []provider.Leftover, dryRun bool) ([]provider.Reclaimed, error)
	// Watch calls notify once at the beginning and with each change, until ctx ends or the World does; always with an error then.
	Watch(ctx context.Context, o Owner, notify func(Event)) error

	// Instances are all instances of all owners, sorted by host and name.
	Instances(ctx context.Context) ([]Record, error)
	// Faults that were set at run time.
	Faults(ctx context.Context) ([]Rule, error)
	// SetFault sets a fault at run time, until it is cleared.
	SetFault(ctx context.Context, r Rule) error
	// ClearFaults clears the faults of that name that were set at run time, or all where it is empty, and says how many.
	ClearFaults(ctx context.Context, fault string) (int, error)

	// Close ends what is behind the API: the World with its instances, or the connections to one.
	Close()
}

// ReasonNotAttached of an error: the World does not know the entry (any more), which has to be described to it.
const ReasonNotAttached = "NotAttached"

// Owner is whose instances a call is about.
type Owner struct{ Cluster, Entry string }

// Description of an entry.
type Description struct {
	Hosts []HostDescription
	// Rules say which instances have which faults.
	Rules []Rule
}

// HostDescription is one host of an entry.
type HostDescription struct {
	Name string
	// Addresses that instances take.
	Addresses netip.Prefix
	// Capacity in instances, of all owners together.
	Capacity int
	BootTime time.Duration
	// Faults that the host and all its instances have.
	Faults []string
}

// Rule says who has a fault.
type Rule struct {
	Fault string
	// Hosts is a pattern over the names of hosts; empty: all.
	Hosts string `json:",omitempty"`
	// Proxies is a pattern over the names of Proxies; empty: all, and the hosts themselves.
	Proxies string `json:",omitempty"`
}

// Event tells that something changed.
type Event struct {
	// UIDs of the Proxies whose instances changed.
	UIDs []string `json:",omitempty"`
	// Hosts as they are now.
	Hosts []provider.HostState
}

// Record is an instance as whoever runs the simulator sees it.
type Record struct {
	provider.Instance
	Owner
	// InstanceName on its host.
	InstanceName string
	// Faults that it has, sorted.
	Faults []string `json:",omitempty"`
	// Listening says whether its port is open.
	Listening bool
}

// describe is an entry of the providers file as a World wants it.
func describe(entry config.Entry) (Description, error) {
	var d Description
	for _, h := range entry.Hosts {
		addresses, err := netip.ParsePrefix(h.Addresses)
		if err != nil {
			return Description{}, err
		}
		d.Hosts = append(d.Hosts, HostDescription{
			Name: h.Name, Addresses: addresses, Capacity: h.Capacity, BootTime: h.BootTime.D(), Faults: h.Faults,
		})
	}
	for _, f := range entry.Faults {
		d.Rules = append(d.Rules, Rule{Fault: f.Fault, Proxies: f.Proxies})
	}
	return d, nil
}
