// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Backends reaches the hosts of one entry, for libvirt.New.
func Backends(credentials config.SSHCredentials) func(config.Host) libvirt.Backend {
	return CountedBackends(credentials, nil)
}

// CountedBackends is Backends, with count told of each call to libvirt: the host's name, and libvirt's name of the procedure. It must not block.
func CountedBackends(credentials config.SSHCredentials, count func(host, procedure string)) func(config.Host) libvirt.Backend {
	return func(h config.Host) libvirt.Backend {
		t := TargetOf(credentials, h)
		if count != nil {
			t.Count = func(procedure string) { count(h.Name, procedure) }
		}
		return NewBackend(t, h.Pool)
	}
}
