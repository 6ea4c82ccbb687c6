// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path"
	"strings"
	"unicode"
)

const (
	// maxInterfaceName is the kernel's IFNAMSIZ without its final zero.
	maxInterfaceName = 15
	// maxSocketPath is the size of sun_path without its final zero.
	maxSocketPath = 107
	// maxObjectName leaves room for libvirt's own suffix in a file name of 255 bytes.
	maxObjectName = 200
	maxUserName   = 128
	maxJumps      = 4
	maxHostVCPUs  = 65_536
)

func (d *document) validateHost(at string, h *Host, folder string) {
	if h.Local {
		for _, key := range []string{"address", "user", "hostKeyAlias", "jump"} {
			if d.has(at + "." + key) {
				d.failf(at+"."+key, "stands beside local: true, where nothing is dialed: remove one of the two")
			}
		}
	} else {
		d.validateLogin(at, h.Address, h.User, h.HostKeyAlias)
		d.validateJumps(at+".jump", h.Jump, folder)
	}
	d.validateSocket(at+".socket", h.Socket, "libvirt's socket on the host, such as "+DefaultSocket)
	d.validateObjectName(at+".pool", h.Pool)
	d.validateAttachment(at, h)
	d.inRange(at+".maxVCPUs", int64(h.MaxVCPUs), 0, maxHostVCPUs)
}

// validateLogin checks where one sshd is, and who logs in there.
func (d *document) validateLogin(at, address, user, alias string) {
	if d.needs(at + ".address") {
		if _, err := normalAddress(address); err != nil {
			d.failf(at+".address", "%s", err)
		}
	}
	if len(user) > maxUserName || strings.ContainsFunc(user, spaceOrControl) || strings.ContainsAny(user, "@:") {
		d.failf(at+".user", "must be the name of a user on the host, without a host, a password or spaces")
	}
	if d.has(at + ".hostKeyAlias") {
		if _, err := normalHost(alias); err != nil {
			d.failf(at+".hostKeyAlias", "must be a name of known_hosts: a host name or an IP address, without port and brackets")
		}
	}
}

func (d *document) validateJumps(path string, jumps []JumpHost, folder string) {
	switch {
	case d.has(path) && len(jumps) == 0:
		d.failf(path, "is an empty list: name a jump host, or leave the key out")
	case len(jumps) > maxJumps:
		d.failf(path, "must be at most %d jump hosts, not %d", maxJumps, len(jumps))
	}
	seen := map[string]string{}
	for i := range jumps {
		at, j := item(path, i), &jumps[i]
		d.validateLogin(at, j.Address, j.User, j.HostKeyAlias)
		if d.has(at+".address") && d.sound(at+".address") {
			d.unique(seen, at+".address", j.DialAddress())
		}
		if d.has(at + ".credentials") {
			d.validateCredentials(at+".credentials", &j.Credentials, folder)
		}
	}
}

// validateAttachment checks what guests are attached to: a bridge or a network.
func (d *document) validateAttachment(at string, h *Host) {
	bridge, network := d.has(at+".bridge"), d.has(at+".network")
	switch {
	case bridge && network:
		d.failf(at+".network", "stands beside bridge: guests are attached to one of them, remove the other")
		return
	case !bridge && !network && d.sound(at+".bridge") && d.sound(at+".network"):
		d.failf(at, "needs a bridge (of the host) or a network (of libvirt) that guests are attached to")
		return
	}
	if bridge {
		d.validateInterface(at+".bridge", h.Bridge)
	}
	if network {
		d.validateObjectName(at+".network", h.Network)
	}
}

// validateInterface has the rules of the kernel (dev_valid_name).
func (d *document) validateInterface(at, name string) {
	switch {
	case len(name) > maxInterfaceName:
		d.failf(at, "must be the name of a network interface: at most %d bytes, not %d", maxInterfaceName, len(name))
	case name == "." || name == ".." || strings.ContainsAny(name, "/:") || strings.ContainsFunc(name, spaceOrControl):
		d.failf(at, `must be the name of a network interface: no "/", ":", space or control character, and not "." or ".."`)
	}
}

// validateSocket checks the path of a unix socket; example says of what, and gives one.
func (d *document) validateSocket(at, socket, example string) {
	switch {
	case hasControl(socket):
		d.failf(at, "must be a path without control characters")
	case !path.IsAbs(socket) || strings.HasSuffix(socket, "/"):
		d.failf(at, "must be the absolute path of %s", example)
	case len(socket) > maxSocketPath:
		d.failf(at, "must be at most %d bytes, as every path of a unix socket, not %d", maxSocketPath, len(socket))
	}
}

// validateObjectName checks the name of a pool or a network of libvirt, which keeps each in a file of that name.
func (d *document) validateObjectName(at, name string) {
	switch {
	case len(name) > maxObjectName:
		d.failf(at, "must be at most %d bytes, not %d", maxObjectName, len(name))
	case name == "." || name == ".." || strings.Contains(name, "/") || hasControl(name) || strings.TrimSpace(name) != name:
		d.failf(at, `must be a name that libvirt can have: no "/" or control character, no space at its ends, and not "." or ".."`)
	}
}

func spaceOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// validateDaemons refuses hosts that would make instances in one another's place: two entries of one libvirt and pool would
// share and collect each other's volumes, and an entry that has one libvirt twice would count each instance twice.
func (d *document) validateDaemons(f *File) {
	type place struct{ daemon, pool string }
	pools := map[place]string{}
	for i, e := range f.Entries {
		own := map[string]string{}
		for j, h := range e.Hosts {
			at := item(item("entries", i)+".hosts", j)
			if !h.Local && !d.has(at+".address") || !d.sound(at+".address") || !d.sound(at+".socket") || !d.sound(at+".pool") {
				continue
			}
			daemon, key := h.daemon(), at+".address"
			if h.Local {
				key = at + ".local"
			}
			if first, ok := own[daemon]; ok {
				d.failf(key, "is the libvirt of %s (same address and socket): an entry has each host once", first)
				continue
			}
			own[daemon] = at
			here := place{daemon, h.Pool}
			if first, ok := pools[here]; ok {
				d.failf(key, "is the libvirt and the pool of %s (same address, socket and pool): give one of the two another pool", first)
				continue
			}
			pools[here] = at
		}
	}
}
