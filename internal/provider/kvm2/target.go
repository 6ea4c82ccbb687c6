// SPDX-License-Identifier: Apache-2.0

package kvm2

import (
	"bytes"
	"errors"
	"os"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/link"
)

// TargetOf says how one host of an entry is reached. Keys are read at each dial, so that a rotated one is used at once.
func TargetOf(credentials config.SSHCredentials, h config.Host) link.Target {
	if h.Local {
		return link.Target{Local: true, Socket: h.Socket}
	}
	t := link.Target{Hop: hop(credentials, h.DialAddress(), h.User, h.HostKeyAlias), Socket: h.Socket}
	for _, j := range h.Jump {
		t.Jumps = append(t.Jumps, hop(j.CredentialsOr(credentials), j.DialAddress(), j.User, j.HostKeyAlias))
	}
	return t
}

func hop(credentials config.SSHCredentials, address, user, alias string) link.Hop {
	return link.Hop{
		Address: address, User: user, HostKeyAlias: alias,
		KnownHosts: credentials.KnownHostsFile,
		Auth:       auth(credentials),
	}
}

func auth(credentials config.SSHCredentials) link.Auth {
	if credentials.Agent {
		return link.Auth{Agent: agentSocket}
	}
	a := link.Auth{
		KeyName: credentials.PrivateKeyFile,
		Key:     func() ([]byte, error) { return os.ReadFile(credentials.PrivateKeyFile) },
	}
	if file := credentials.PassphraseFile; file != "" {
		a.PassphraseName = file
		a.Passphrase = func() ([]byte, error) {
			passphrase, err := os.ReadFile(file)
			return bytes.TrimRight(passphrase, "\r\n"), err
		}
	}
	return a
}

func agentSocket() (string, error) {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return "", errors.New("SSH_AUTH_SOCK is not set in the operator's environment")
	}
	return socket, nil
}
