// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// ProvidersYAML is the lab's providers file: one entry with all of its hosts, and the guest images by the names tiny, cloud and empty.
func (l *Lab) ProvidersYAML() string {
	file := l.ProvidersHead("tiny", map[string]string{"tiny": l.Images.Tiny, "cloud": l.Images.Cloud, "empty": l.Images.Empty})
	for _, h := range l.Hosts {
		file += HostYAML(h, h.SSHAddress)
	}
	return file
}

// ProvidersHead is a providers file up to the hosts of its one entry; images are paths on this machine, by name.
func (l *Lab) ProvidersHead(defaultImage string, images map[string]string) string {
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
  defaultImage: %s
  defaults: {vcpus: 1, memoryMiB: 256, diskSizeGb: 1}
  images:
`, l.ReflectorURL(), Entry, l.Hosts[0].KeyFile, l.Hosts[0].KnownHostsFile, defaultImage)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		fmt.Fprintf(&b, "    %s: {url: \"file://%s\"}\n", name, images[name])
	}
	b.WriteString("  hosts:\n")
	return b.String()
}

// HostYAML is a host's line, at an address; known_hosts calls the host by the address that it really has.
func HostYAML(h *kvmhost.Host, address string) string {
	alias := ""
	if address != h.SSHAddress {
		name, _, _ := strings.Cut(h.SSHAddress, ":")
		alias = ", hostKeyAlias: " + strconv.Quote(name)
	}
	return fmt.Sprintf("  - {name: %s, address: %q%s, pool: %s, network: %s}\n", HostName(h.Number), address, alias, h.PoolName, h.Network)
}

// HostName is the name of a host in the providers file.
func HostName(number int) string { return fmt.Sprintf("host%d", number) }

// WriteProviders replaces the providers file that the next operator reads.
func (l *Lab) WriteProviders(yaml string) error {
	l.Providers = filepath.Join(l.Dir, "providers.yaml")
	return os.WriteFile(l.Providers, []byte(yaml), 0o600)
}
