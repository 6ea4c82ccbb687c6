// SPDX-License-Identifier: Apache-2.0

// Package config is the providers file: its types, strict decoding, defaults and validation.
package config

import "time"

// Version of the providers file that this program reads.
const Version = 1

// File is the providers file.
type File struct {
	// Version of the format; 1.
	Version int `yaml:"version"`
	// Reflectors answer a request with the address that it came from. Probes go to them through each proxy; agents always reach them.
	Reflectors []Reflector `yaml:"reflectors"`
	// Probe is how health is found, unless a Proxy overrides it.
	Probe Probe `yaml:"probe"`
	// Entries are the named providers.
	Entries []Entry `yaml:"entries"`
}

// Reflector is one address that answers a request with the address that it came from.
type Reflector struct {
	// URL, http:// or https://, without user or password. Its host is a name or an address that the guests can reach.
	URL string `yaml:"url"`
}

// Probe is how health is found.
type Probe struct {
	// Interval between two probes of a healthy proxy; 5s to 1h, default 30s.
	Interval Duration `yaml:"interval"`
	// Timeout of one probe; 1s to 1m and at most Interval, default 5s.
	Timeout Duration `yaml:"timeout"`
	// FailureThreshold is how many probes in a row must fail before a healthy proxy counts as unhealthy; 1 to 20, default 3.
	FailureThreshold int `yaml:"failureThreshold"`
	// SuccessThreshold is how many probes in a row must succeed before an unhealthy proxy counts as healthy again; 1 to 20, default 1.
	SuccessThreshold int `yaml:"successThreshold"`
}

// Entry is one named, configured provider.
type Entry struct {
	// Name that spec.provider refers to: a DNS label of at most 30 characters.
	Name string `yaml:"name"`
	// Type of provider: kvm2.
	Type string `yaml:"type"`
	// Hosts are the hypervisors of this entry.
	Hosts []Host `yaml:"hosts"`
	// Credentials for the hosts.
	Credentials SSHCredentials `yaml:"credentials"`
	// Images is the catalogue: key to image.
	Images map[string]Image `yaml:"images"`
	// DefaultImage is the key used where a Proxy names no image; may be left out when there is one image only.
	DefaultImage string `yaml:"defaultImage"`
	// Defaults for what a Proxy's placement leaves out.
	Defaults Sizes `yaml:"defaults"`
	// AllowEmulation lets guests run without KVM (slow) on hosts that lack it.
	AllowEmulation bool `yaml:"allowEmulation"`
	// AllowedNamespaces may use this entry; all may when it is left out.
	AllowedNamespaces []string `yaml:"allowedNamespaces"`
	// AllowURLImages are the hosts from which a Proxy's own placement.image.url may be fetched; none when left out.
	AllowURLImages []string `yaml:"allowURLImages"`
	// Destinations that the agents may reach beyond the public Internet.
	Destinations Destinations `yaml:"destinations"`
	// PoolReserveGiB of each pool stay free; 0 to 1,048,576, default 2.
	PoolReserveGiB *int64 `yaml:"poolReserveGiB"`
	// MaxImageBytes bounds an image as served and as stored; default 16 GiB.
	MaxImageBytes int64 `yaml:"maxImageBytes"`
}

// Host is one hypervisor of an entry.
type Host struct {
	// Name that placement.host refers to; a DNS name.
	Name string `yaml:"name"`
	// Address is host, host:port or [v6]:port; the port is 22 when left out.
	Address string `yaml:"address"`
	// User to log in as; default root.
	User string `yaml:"user"`
	// HostKeyAlias is the name under which known_hosts has this host; default its address.
	HostKeyAlias string `yaml:"hostKeyAlias"`
	// Socket is libvirt's on the host; default /var/run/libvirt/libvirt-sock.
	Socket string `yaml:"socket"`
	// Pool that holds bases, overlays and seeds; default "default".
	Pool string `yaml:"pool"`
	// Bridge that guests are attached to; either this or Network.
	Bridge string `yaml:"bridge"`
	// Network of libvirt that guests are attached to; either this or Bridge.
	Network string `yaml:"network"`
	// Schedulable false keeps new instances away; default true.
	Schedulable *bool `yaml:"schedulable"`
}

// SSHCredentials for the hosts of an entry, by file; read anew at each connection.
type SSHCredentials struct {
	// PrivateKeyFile in OpenSSH or PEM format.
	PrivateKeyFile string `yaml:"privateKeyFile"`
	// PassphraseFile holds the key's passphrase, where it has one.
	PassphraseFile string `yaml:"passphraseFile"`
	// KnownHostsFile pins the hosts' keys, in OpenSSH's format.
	KnownHostsFile string `yaml:"knownHostsFile"`
}

// Image is one entry of the catalogue.
type Image struct {
	// URL: https://, http:// (needs a digest) or file:// in the operator's file system; without user or password.
	URL string `yaml:"url"`
	// SHA256 of the file as served, in hexadecimal.
	SHA256 string `yaml:"sha256"`
	// Format is qcow2 or raw; read from the content when left out, and checked against it otherwise.
	Format string `yaml:"format"`
	// Arch is x86_64 or aarch64; default x86_64.
	Arch string `yaml:"arch"`
	// Firmware is bios or efi; default bios.
	Firmware string `yaml:"firmware"`
}

// Sizes of a guest.
type Sizes struct {
	// VCPUs: 1 to 64, default 1.
	VCPUs int `yaml:"vcpus"`
	// MemoryMiB: 64 to 262,144, default 512.
	MemoryMiB int `yaml:"memoryMiB"`
	// DiskSizeGb in GiB: 1 to 4,096, default 4.
	DiskSizeGb int `yaml:"diskSizeGb"`
}

// Destinations that agents may reach beyond the public Internet and the reflectors.
type Destinations struct {
	// Allow lists networks in CIDR notation.
	Allow []string `yaml:"allow"`
}

// Duration is a time.Duration that YAML writes as 30s or 5m.
type Duration time.Duration
