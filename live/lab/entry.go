// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// EntryHost is what EntryOf calls the host.
const EntryHost = "host"

// EntryOf is an entry of the providers file, as it is when it has been loaded: the host alone, and one image, by the key.
func EntryOf(h *kvmhost.Host, name, key string, i config.Image) config.Entry {
	reserve := int64(0)
	i.Arch, i.Firmware = config.ArchX8664, config.FirmwareBIOS
	return config.Entry{
		Name: name, Type: config.TypeKVM2, AllowEmulation: true, DefaultImage: key,
		Hosts:         []config.Host{{Name: EntryHost, Address: h.SSHAddress, User: h.User, Socket: h.Socket, Pool: h.PoolName, Network: h.Network}},
		Credentials:   config.SSHCredentials{PrivateKeyFile: h.KeyFile, KnownHostsFile: h.KnownHostsFile},
		Images:        map[string]config.Image{key: i},
		MaxImageBytes: 4 << 30, PoolReserveGiB: &reserve,
	}
}
