// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
)

const (
	maxPoolReserveGiB = 1 << 20
	maxImageBytes     = 4 << 40
)

func (d *document) validateEntry(path string, e *Entry, folder string) {
	if d.needs(path + ".type") {
		d.oneOf(path+".type", e.Type, Types()...)
	}
	d.validateAdmission(path, e)
	d.validateDestinations(path+".destinations.allow", e.Destinations.Allow)
	entryType := meantType(e.Type)
	d.keysOfType(path, entryType, *e)
	names := map[string]string{}
	for i := range e.Hosts {
		at, h := item(path+".hosts", i), &e.Hosts[i]
		d.keysOfType(at, entryType, *h)
		if d.needs(at + ".name") {
			d.matches(at+".name", h.Name, hostKey, `lower-case letters, digits, "." and "-", at most 63`)
			d.unique(names, at+".name", h.Name)
		}
	}
	switch entryType {
	case TypeKVM2:
		d.validateKVM2(path, e, folder)
	case TypeLocal:
		d.validateLocal(path, e)
	case TypeSimulated:
		d.validateSimulated(path, e)
	}
}

// keysOfType refuses the keys of a struct that entries of another type have.
func (d *document) keysOfType(path, entryType string, of any) {
	t := reflect.TypeOf(of)
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if at := child(path, tag.Get("yaml")); d.has(at) && entryType != "" && !hasType(tag, entryType) {
			d.failf(at, "belongs to entries of type %s: this one is of type %s", strings.ReplaceAll(tag.Get("types"), ",", " or "), entryType)
		}
	}
}

func (d *document) validateKVM2(path string, e *Entry, folder string) {
	d.needsHosts(path, e)
	for i := range e.Hosts {
		d.validateHost(item(path+".hosts", i), &e.Hosts[i], folder)
	}
	if !e.onlyLocal() || d.has(path+".credentials") {
		d.validateCredentials(path+".credentials", &e.Credentials, folder)
	}
	d.validateMirrors(path+".mirrors", e.Mirrors, folder)
	d.validateImages(path, e)
	d.validateSizes(path+".defaults", e.Defaults)
	d.validateURLHosts(path+".allowURLImages", e.AllowURLImages)
	d.validateGuestData(path, e, folder)
	d.validateAllowUserData(path+".allowUserData", e)
	for i := range e.AddressPools {
		d.validateAddressPool(item(path+".addressPools", i), e, &e.AddressPools[i])
	}
	d.inRange(path+".poolReserveGiB", e.ReserveGiB(), 0, maxPoolReserveGiB)
	d.inRange(path+".maxImageBytes", e.MaxImageBytes, 1, maxImageBytes)
}

func (d *document) needsHosts(path string, e *Entry) {
	if len(e.Hosts) == 0 {
		d.failf(path+".hosts", "needs at least one host")
	}
}

func (d *document) validateSizes(path string, s Sizes) {
	d.inRange(path+".vcpus", int64(s.VCPUs), 1, 64)
	d.inRange(path+".memoryMiB", int64(s.MemoryMiB), 64, 262_144)
	d.inRange(path+".diskSizeGb", int64(s.DiskSizeGb), 1, 4096)
}

func (d *document) validateCredentials(path string, c *SSHCredentials, folder string) {
	for _, file := range c.files() {
		at := path + "." + file.key
		if c.Agent && file.ofKey {
			if d.has(at) {
				d.failf(at, "stands beside agent: true, where the agent has the keys: remove one of the two")
			}
			continue
		}
		if file.required && !d.needs(at) || *file.path == "" {
			continue
		}
		d.validatePath(at, file.path, folder)
	}
}

// validatePath checks a path, and makes it absolute.
func (d *document) validatePath(at string, path *string, folder string) {
	switch {
	case hasControl(*path):
		d.failf(at, "must be a path without control characters")
	case strings.HasPrefix(*path, "~"):
		d.failf(at, "must be a path: ~ is not expanded here")
	case !filepath.IsAbs(*path):
		*path = filepath.Join(folder, *path)
	}
}

type credentialsFile struct {
	key      string
	path     *string
	required bool
	ofKey    bool
}

func (c *SSHCredentials) files() []credentialsFile {
	return []credentialsFile{
		{"privateKeyFile", &c.PrivateKeyFile, true, true},
		{"passphraseFile", &c.PassphraseFile, false, true},
		{"knownHostsFile", &c.KnownHostsFile, true, false},
	}
}

// listed are names as an error may show them.
func listed(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "nothing"
	}
	all := make([]string, 0, most+1)
	for _, name := range names[:min(len(names), most)] {
		all = append(all, shown(name))
	}
	if len(names) > most {
		all = append(all, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(all, ", ")
}

func (d *document) validateNamespaces(path string, namespaces []string) {
	if d.has(path) && len(namespaces) == 0 {
		d.failf(path, "is an empty list: name at least one namespace, or leave the key out to let all use the entry")
	}
	seen := map[string]string{}
	for i, ns := range namespaces {
		d.matches(item(path, i), ns, namespace, "the name of a namespace")
		d.unique(seen, item(path, i), ns)
	}
}

func (d *document) validateURLHosts(path string, hosts []string) {
	seen := map[string]string{}
	for i, host := range hosts {
		normal, err := normalHost(host)
		if err != nil {
			d.failf(item(path, i), "must be a DNS name or an IP address, without scheme, port and wildcard")
			continue
		}
		hosts[i] = normal
		d.unique(seen, item(path, i), normal)
	}
}

func (d *document) validateDestinations(path string, networks []string) {
	seen := map[string]string{}
	for i, network := range networks {
		at := item(path, i)
		p, err := netip.ParsePrefix(network)
		switch {
		case err != nil && isIP(network):
			d.failf(at, "must be a network in CIDR notation: for one address add /32 (IPv4) or /128 (IPv6)")
		case err != nil || p.Addr().Is4In6():
			d.failf(at, "must be a network in CIDR notation, such as 10.20.0.0/16 or fd00:1::/64")
		case p.Masked() != p:
			d.failf(at, "has bits set behind its mask: write %s", p.Masked())
		default:
			networks[i] = p.String()
			d.unique(seen, at, networks[i])
		}
	}
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
