// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"net/netip"
	"slices"
)

// Entry is the entry of that name; the pointer is into f.
func (f *File) Entry(name string) (*Entry, bool) {
	for i := range f.Entries {
		if f.Entries[i].Name == name {
			return &f.Entries[i], true
		}
	}
	return nil, false
}

// EntryNames are the names of all entries, in the order of the file.
func (f *File) EntryNames() []string {
	names := make([]string, len(f.Entries))
	for i, e := range f.Entries {
		names[i] = e.Name
	}
	return names
}

// Host is the host of that name; the pointer is into e.
func (e *Entry) Host(name string) (*Host, bool) {
	for i := range e.Hosts {
		if e.Hosts[i].Name == name {
			return &e.Hosts[i], true
		}
	}
	return nil, false
}

// HostNames are the names of all hosts of the entry, in the order of the file.
func (e *Entry) HostNames() []string {
	names := make([]string, len(e.Hosts))
	for i, h := range e.Hosts {
		names[i] = h.Name
	}
	return names
}

// ImageNames are the keys of the catalogue, sorted.
func (e *Entry) ImageNames() []string { return slices.Sorted(maps.Keys(e.Images)) }

// onlyLocal says that nothing is dialed by SSH.
func (e *Entry) onlyLocal() bool {
	return len(e.Hosts) > 0 && !slices.ContainsFunc(e.Hosts, func(h Host) bool { return !h.Local })
}

// CredentialsOr are the jump host's own, or those of its entry.
func (j JumpHost) CredentialsOr(entry SSHCredentials) SSHCredentials {
	if j.Credentials == (SSHCredentials{}) {
		return entry
	}
	return j.Credentials
}

// HasMachines says whether the entry's instances have a size.
func (e *Entry) HasMachines() bool { return e.Type != TypeLocal }

// HasCatalogue says whether the entry's instances boot images, which it names.
func (e *Entry) HasCatalogue() bool { return e.Type == TypeKVM2 }

// AllowsNamespace says whether Proxies of that namespace may use the entry.
func (e *Entry) AllowsNamespace(namespace string) bool {
	return len(e.AllowedNamespaces) == 0 || slices.Contains(e.AllowedNamespaces, namespace)
}

// ReserveGiB is PoolReserveGiB, or its default.
func (e *Entry) ReserveGiB() int64 {
	if e.PoolReserveGiB == nil {
		return DefaultPoolReserveGiB
	}
	return *e.PoolReserveGiB
}

// SpoolGiB is ImageSpoolGiB, or its default.
func (f *File) SpoolGiB() int64 {
	if f.ImageSpoolGiB == nil {
		return DefaultImageSpoolGiB
	}
	return *f.ImageSpoolGiB
}

// IsSchedulable says whether new instances may be placed on the host.
func (h Host) IsSchedulable() bool { return h.Schedulable == nil || *h.Schedulable }

// Prefixes are the allowed networks. A network that a providers file may not have is left out.
func (d Destinations) Prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, network := range d.Allow {
		if p, err := netip.ParsePrefix(network); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}
