// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ProvidersYAML is the lab's providers file: one entry with all of its hosts, and the guest images by the names tiny, cloud and empty.
func (l *Lab) ProvidersYAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, `version: 1
reflectors:
- url: %s
probe: {interval: 5s, timeout: 2s}
entries:
- name: %s
  type: kvm2
  credentials: {privateKeyFile: %s, knownHostsFile: %s}
  allowEmulation: true
  poolReserveGiB: 1
  images:
    tiny: {url: "file://%s"}
    cloud: {url: "file://%s"}
    empty: {url: "file://%s"}
  defaultImage: tiny
  defaults: {vcpus: 1, memoryMiB: 256, diskSizeGb: 1}
  hosts:
`, l.ReflectorURL(), Entry, l.Hosts[0].KeyFile, l.Hosts[0].KnownHostsFile, l.Images.Tiny, l.Images.Cloud, l.Images.Empty)
	for _, h := range l.Hosts {
		fmt.Fprintf(&b, "  - {name: %s, address: %q, pool: %s, network: %s}\n", HostName(h.Number), h.SSHAddress, h.PoolName, h.Network)
	}
	return b.String()
}

// HostName is the name of a host in the providers file.
func HostName(number int) string { return fmt.Sprintf("host%d", number) }

// WriteProviders replaces the providers file that the next operator reads.
func (l *Lab) WriteProviders(yaml string) error {
	l.Providers = filepath.Join(l.Dir, "providers.yaml")
	return os.WriteFile(l.Providers, []byte(yaml), 0o600)
}
