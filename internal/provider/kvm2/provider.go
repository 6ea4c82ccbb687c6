// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Backends reaches the hosts of one entry, for libvirt.New.
func Backends(credentials config.SSHCredentials) func(config.Host) libvirt.Backend {
	return func(h config.Host) libvirt.Backend { return NewBackend(TargetOf(credentials, h), h.Pool) }
}
