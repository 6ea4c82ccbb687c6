// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"bytes"
	"fmt"
	"os"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/link"
)

// TargetOf says how one host of an entry is reached. Keys are read at each dial, so that a rotated one is used at once.
func TargetOf(credentials config.SSHCredentials, h config.Host) link.Target {
	t := link.Target{
		Address:      h.DialAddress(),
		User:         h.User,
		KnownHosts:   credentials.KnownHostsFile,
		HostKeyAlias: h.HostKeyAlias,
		Socket:       h.Socket,
		Auth: link.Auth{
			KeyName: credentials.PrivateKeyFile,
			Key:     func() ([]byte, error) { return os.ReadFile(credentials.PrivateKeyFile) },
		},
	}
	if file := credentials.PassphraseFile; file != "" {
		t.Auth.Passphrase = func() ([]byte, error) {
			passphrase, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading the key's passphrase: %w", err)
			}
			return bytes.TrimRight(passphrase, "\r\n"), nil
		}
	}
	return t
}
