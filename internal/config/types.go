// SPDX-License-Identifier: Apache-2.0

// Package config is the providers file: its types, strict decoding, defaults and validation.
//
// Load and Parse return a file that is whole: every default is filled in and everything that the types below promise holds.
// Otherwise they return Errors, which names each mistake in the file at once, with its line and its path.
//
// A key that is left out takes its default. A key that is there must have a value: an explicit 0, "" or null is a mistake,
// never a default.
package config

// Version of the providers file that this program reads.
const Version = 1

// TypeKVM2 is the provider that speaks libvirt's RPC protocol over SSH.
const TypeKVM2 = "kvm2"

// Types are the types of provider that an entry may have.
func Types() []string { return []string{TypeKVM2} }

// What an image may be.
const (
	FormatQCOW2  = "qcow2"
	FormatRaw    = "raw"
	ArchX8664    = "x86_64"
	ArchAArch64  = "aarch64"
	FirmwareBIOS = "bios"
	FirmwareEFI  = "efi"
)

// File is the providers file.
type File struct {
	// Version of the format; 1.
	Version int `yaml:"version"`
	// Reflectors answer a request with the address that it came from. Probes go to them through each proxy; agents always reach them.
	Reflectors []Reflector `yaml:"reflectors"`
	// Probe is how health is found, unless a Proxy overrides it.
	Probe Probe `yaml:"probe"`
	// Entries are the named providers; none where all Proxies are external.
	Entries []Entry `yaml:"entries"`
}

// Reflector is one address that answers a request with the address that it came from.
type Reflector struct {
	// URL, http:// or https://, without user or password and without a bare @ or a fragment. Its host is a name or an address that
	// the guests can reach.
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
	// Hosts are the hypervisors of this entry: at least one. No two hosts of the file may be one libvirt (address and socket) with
	// one pool, and no two hosts of an entry one libvirt.
	Hosts []Host `yaml:"hosts"`
	// Credentials for the hosts.
	Credentials SSHCredentials `yaml:"credentials"`
	// Images is the catalogue: key to image. Keys have lower-case letters, digits, ".", "_" and "-", at most 63. May be left out
	// where AllowURLImages is set.
	Images map[string]Image `yaml:"images"`
	// DefaultImage is the key used where a Proxy names no image; may be left out when there is one image only.
	DefaultImage string `yaml:"defaultImage"`
	// Defaults for what a Proxy's placement leaves out.
	Defaults Sizes `yaml:"defaults"`
	// AllowEmulation lets guests run without KVM (slow) on hosts that lack it.
	AllowEmulation bool `yaml:"allowEmulation"`
	// AllowedNamespaces may use this entry; all may when it is left out. An empty list is refused.
	AllowedNamespaces []string `yaml:"allowedNamespaces"`
	// AllowURLImages are the hosts (names or addresses, without port, in lower case) from which a Proxy's own placement.image.url may be fetched; none when left out.
	AllowURLImages []string `yaml:"allowURLImages"`
	// Destinations that the agents may reach beyond the public Internet and the reflectors.
	Destinations Destinations `yaml:"destinations"`
	// PoolReserveGiB of each pool stay free; 0 to 1,048,576, default 2, and never nil in a loaded file.
	PoolReserveGiB *int64 `yaml:"poolReserveGiB"`
	// MaxImageBytes bounds an image as served and as stored, in bytes; 1 to 4 TiB, default 16 GiB.
	MaxImageBytes int64 `yaml:"maxImageBytes"`
}

// Host is one hypervisor of an entry.
type Host struct {
	// Name that placement.host refers to: lower-case letters, digits, "." and "-", at most 63 characters.
	Name string `yaml:"name"`
	// Address of the host's sshd: host, host:port or [v6]:port; the port is 22 when left out. DialAddress is its normal form.
	Address string `yaml:"address"`
	// User to log in as; default root.
	User string `yaml:"user"`
	// HostKeyAlias is the name, without port, under which known_hosts has this host. Left empty, known_hosts is searched for the
	// address.
	HostKeyAlias string `yaml:"hostKeyAlias"`
	// Socket is libvirt's on the host, an absolute path of at most 107 bytes; default /var/run/libvirt/libvirt-sock.
	Socket string `yaml:"socket"`
	// Pool that holds bases, overlays and seeds; default "default".
	Pool string `yaml:"pool"`
	// Bridge that guests are attached to, at most 15 bytes as the kernel has it; either this or Network.
	Bridge string `yaml:"bridge"`
	// Network of libvirt that guests are attached to; either this or Bridge.
	Network string `yaml:"network"`
	// Schedulable false keeps new instances away; default true, and never nil in a loaded file.
	Schedulable *bool `yaml:"schedulable"`
}

// SSHCredentials for the hosts of an entry, by file; read anew at each connection. Paths in the file are absolute, or relative to
// the folder of the providers file; in a loaded file they are absolute.
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
	// URL: https://, http:// (needs a digest) or file:///absolute/path in the operator's file system; without user or password.
	URL string `yaml:"url"`
	// SHA256 of the file as served: 64 hexadecimal digits, in lower case in a loaded file.
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
	// Allow lists networks in CIDR notation, without host bits.
	Allow []string `yaml:"allow"`
}
