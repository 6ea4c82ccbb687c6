// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Type of the entries that this package serves.
const Type = "kvm2"

// New makes the provider of one entry. What o.Backend says is replaced: hosts are reached over SSH, as the entry says.
func New(o libvirt.Options) (*libvirt.Provider, error) {
	credentials := o.Entry.Credentials
	o.Backend = func(h config.Host) libvirt.Backend { return NewBackend(TargetOf(credentials, h), h.Pool) }
	return libvirt.New(o)
}
