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

// Types of provider.
const (
	// TypeKVM2 makes VMs through libvirt's RPC protocol over SSH.
	TypeKVM2 = "kvm2"
	// TypeLocal listens on this machine and sends from its own addresses.
	TypeLocal = "local"
	// TypeSimulated makes nothing but loopback listeners, with chosen delays and faults.
	TypeSimulated = "simulated"
)

// Types are the types of provider that an entry may have.
func Types() []string { return []string{TypeKVM2, TypeLocal, TypeSimulated} }

// What an image may be.
const (
	FormatQCOW2  = "qcow2"
	FormatRaw    = "raw"
	ArchX8664    = "x86_64"
	ArchAArch64  = "aarch64"
	FirmwareBIOS = "bios"
	FirmwareEFI  = "efi"

	DigestOfServed   = "served"
	DigestOfUnpacked = "unpacked"
)

// File is the providers file.
type File struct {
	// Version of the format; 1.
	Version int `yaml:"version"`
	// Reflectors answer a request with the address that it came from. Probes go to them through each proxy; agents always reach them.
	Reflectors []Reflector `yaml:"reflectors"`
	// Probe is how health is found, unless a Proxy overrides it.
	Probe Probe `yaml:"probe"`
	// ImageSpoolGiB bounds what the operator's image spool takes of its disk; 0 to 1,048,576, default 20. At 0 there is no spool: each host downloads
	// its images by itself, and packed images are refused.
	//
	// Never nil in a loaded file.
	ImageSpoolGiB *int64 `yaml:"imageSpoolGiB"`
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

// Entry is one named, configured provider. A key with a tag `types` belongs to entries of those types, and is refused in others.
type Entry struct {
	// Name that spec.provider refers to: a DNS label of at most 30 characters.
	Name string `yaml:"name"`
	// Type of provider: kvm2, local or simulated.
	Type string `yaml:"type"`
	// Hosts of this entry: at least one. No two hosts of the file may be one libvirt (address and socket) with one pool, and no two
	// hosts of an entry one libvirt.
	//
	// In a loaded file an entry of type local has one host for each exit.
	Hosts []Host `yaml:"hosts" types:"kvm2,simulated"`
	// Addresses of this machine that the exits send from: an address, a network in CIDR notation for each address in it (at most 256),
	// or the word outgoing for the address that the default route uses at the time. Without Addresses and Interfaces: outgoing, and
	// 127.0.0.12 to 127.0.0.31.
	Addresses []string `yaml:"addresses" types:"local"`
	// Interfaces of this machine that exits send through, whatever address they have.
	Interfaces []string `yaml:"interfaces" types:"local"`
	// Listen is loopback, where only this machine reaches the proxies, or exit, where each listens on the address that it sends from;
	// default loopback.
	Listen string `yaml:"listen" types:"local"`
	// Socket of a simulator that runs as a process of its own, an absolute path of at most 107 bytes; without it the instances live in
	// the operator's process, and end with it.
	Socket string `yaml:"socket" types:"simulated"`
	// Faults of instances, besides those of their host and of their Proxy's name.
	Faults []Fault `yaml:"faults" types:"simulated"`
	// Credentials for the hosts; may be left out where every host is local.
	Credentials SSHCredentials `yaml:"credentials" types:"kvm2"`
	// Images is the catalogue: key to image. Keys have lower-case letters, digits, ".", "_" and "-", at most 63. May be left out
	// where AllowURLImages is set.
	Images map[string]Image `yaml:"images" types:"kvm2"`
	// Mirrors are servers of images that need credentials, a CA or a proxy. They are for the catalogue only, not for a Proxy's own URL.
	Mirrors []Mirror `yaml:"mirrors" types:"kvm2"`
	// DefaultImage is the key used where a Proxy names no image; may be left out when there is one image only.
	DefaultImage string `yaml:"defaultImage" types:"kvm2"`
	// PrePull lists keys of images that every host which can run them shall hold before a Proxy asks for one; none when left out.
	PrePull []string `yaml:"prePull" types:"kvm2"`
	// Defaults for what a Proxy's placement leaves out.
	Defaults Sizes `yaml:"defaults" types:"kvm2,simulated"`
	// AllowEmulation lets guests run without KVM (slow) on hosts that lack it.
	AllowEmulation bool `yaml:"allowEmulation" types:"kvm2"`
	// AllowedNamespaces may use this entry; all may when it is left out. An empty list is refused.
	AllowedNamespaces []string `yaml:"allowedNamespaces"`
	// AllowPinning lists the namespaces whose Proxies may name their host in placement.host; all that may use the entry when left out. An empty
	// list is refused.
	AllowPinning []string `yaml:"allowPinning"`
	// Quotas bound what the Proxies of a namespace may have of this entry; without one there is no bound.
	Quotas []Quota `yaml:"quotas"`
	// AllowURLImages are the hosts (names or addresses, without port, in lower case) from which a Proxy's own placement.image.url may
	// be fetched; none when left out.
	AllowURLImages []string `yaml:"allowURLImages" types:"kvm2"`
	// VendorData for cloud-init in every guest, but those whose software.type is None: a cloud-config, a script or whatever else cloud-init
	// takes, at most 65,536 bytes. User data goes before it where both say something of one thing.
	//
	// In a loaded file it holds what VendorDataFile has, where that is given.
	VendorData string `yaml:"vendorData" types:"kvm2"`
	// VendorDataFile holds VendorData, instead of it.
	VendorDataFile string `yaml:"vendorDataFile" types:"kvm2"`
	// UserData for cloud-init in every guest, as VendorData. It goes together with a Proxy's own: lists are joined, this one's items first, and
	// of two other values the Proxy's stands.
	//
	// In a loaded file it holds what UserDataFile has, where that is given.
	UserData string `yaml:"userData" types:"kvm2"`
	// UserDataFile holds UserData, instead of it.
	UserDataFile string `yaml:"userDataFile" types:"kvm2"`
	// InstallGuestAgent true has every guest, but those whose software.type is None, install and start qemu-guest-agent by its own package
	// manager, under systemd or OpenRC; default false.
	InstallGuestAgent bool `yaml:"installGuestAgent" types:"kvm2"`
	// AllowUserData lists the namespaces whose Proxies may bring cloud-init user data of their own, which is root in the guest; "*" for all that
	// may use the entry; none when left out.
	AllowUserData []string `yaml:"allowUserData" types:"kvm2"`
	// AddressPools are addresses for guests where there is no DHCP. A guest gets one address of each family that its host has pools for, and
	// keeps it for as long as its Proxy is there.
	AddressPools []AddressPool `yaml:"addressPools" types:"kvm2"`
	// Destinations that the agents may reach beyond the public Internet and the reflectors.
	Destinations Destinations `yaml:"destinations" types:"kvm2,local"`
	// PoolReserveGiB of each pool stay free; 0 to 1,048,576, default 2.
	//
	// Never nil in a loaded entry of type kvm2.
	PoolReserveGiB *int64 `yaml:"poolReserveGiB" types:"kvm2"`
	// MaxImageBytes bounds an image as served and as unpacked, in bytes; 1 to 4 TiB, default 16 GiB.
	MaxImageBytes int64 `yaml:"maxImageBytes" types:"kvm2"`
}

// Host is one hypervisor of an entry, or one that is simulated.
type Host struct {
	// Name that placement.host refers to: lower-case letters, digits, "." and "-", at most 63 characters.
	Name string `yaml:"name"`
	// Address of the host's sshd: host, host:port or [v6]:port; the port is 22 when left out.
	//
	// DialAddress is its normal form.
	Address string `yaml:"address" types:"kvm2"`
	// Local is true where libvirt runs on the operator's own machine: its Socket is used directly, without SSH and without Address,
	// User, HostKeyAlias and Jump. Default false.
	Local bool `yaml:"local" types:"kvm2"`
	// User to log in as; default root.
	User string `yaml:"user" types:"kvm2"`
	// HostKeyAlias is the name, without port, under which known_hosts has this host. Left empty, known_hosts is searched for the
	// address.
	HostKeyAlias string `yaml:"hostKeyAlias" types:"kvm2"`
	// Jump lists the jump hosts on the way to Address, the first one first; at most 4.
	Jump []JumpHost `yaml:"jump" types:"kvm2"`
	// Socket is libvirt's on the host, an absolute path of at most 107 bytes; default /var/run/libvirt/libvirt-sock.
	Socket string `yaml:"socket" types:"kvm2"`
	// Pool that holds bases, overlays and seeds; default "default".
	Pool string `yaml:"pool" types:"kvm2"`
	// Bridge that guests are attached to, at most 15 bytes as the kernel has it; either this or Network.
	Bridge string `yaml:"bridge" types:"kvm2"`
	// Network of libvirt that guests are attached to; either this or Bridge.
	Network string `yaml:"network" types:"kvm2"`
	// MaxVCPUs bounds the vCPUs of this entry's guests on the host together; 0 to 65,536, default 0: no bound. A guest with more vCPUs than the host
	// has processors is never placed there.
	MaxVCPUs int `yaml:"maxVCPUs" types:"kvm2"`
	// Addresses for its instances: a network inside 127.0.0.0/8 of at most 65,536 addresses, in CIDR notation. No two hosts
	// of the file share one.
	Addresses string `yaml:"addresses" types:"simulated"`
	// Capacity is how many instances the host takes; 1 to 65,536, default 100.
	Capacity int `yaml:"capacity" types:"simulated"`
	// BootTime of a simulated instance; 0s to 1h, default 2s.
	BootTime Duration `yaml:"bootTime" types:"simulated"`
	// Faults of the host, and of every instance on it.
	Faults []string `yaml:"faults" types:"simulated"`
	// Schedulable false keeps new instances away; default true.
	//
	// Never nil in a loaded file.
	Schedulable *bool `yaml:"schedulable"`
}

// JumpHost is an sshd on the way to a host. Its host key is checked like a host's, and it must let its user forward TCP.
type JumpHost struct {
	// Address of its sshd, as the one before it reaches it: host, host:port or [v6]:port; the port is 22 when left out.
	//
	// DialAddress is its normal form.
	Address string `yaml:"address"`
	// User to log in as; default root.
	User string `yaml:"user"`
	// HostKeyAlias is the name, without port, under which known_hosts has it. Left empty, known_hosts is searched for the address.
	HostKeyAlias string `yaml:"hostKeyAlias"`
	// Credentials for it; those of the entry when left out.
	Credentials SSHCredentials `yaml:"credentials"`
}

// Fault is a fault of a simulated entry, and who has it.
type Fault struct {
	// Fault is the name of a fault.
	Fault string `yaml:"fault"`
	// Proxies, by name, whose instances have it: the name of a Proxy, or a pattern such as shop-*; all when left out.
	Proxies string `yaml:"proxies"`
}

// SSHCredentials for the hosts of an entry, by file; read anew at each connection. Paths in the file are absolute, or relative to
// the folder of the providers file; in a loaded file they are absolute.
type SSHCredentials struct {
	// PrivateKeyFile to log in with, in OpenSSH or PEM format; either this or Agent.
	PrivateKeyFile string `yaml:"privateKeyFile"`
	// PassphraseFile holds the key's passphrase, where it has one.
	PassphraseFile string `yaml:"passphraseFile"`
	// Agent true logs in with the keys of the ssh-agent that SSH_AUTH_SOCK names in the operator's environment; default false.
	Agent bool `yaml:"agent"`
	// KnownHostsFile pins the hosts' keys, in OpenSSH's format; @cert-authority and @revoked lines count.
	KnownHostsFile string `yaml:"knownHostsFile"`
}

// Image is one entry of the catalogue. At most one of SHA256, SHA512 and Checksums is given.
type Image struct {
	// URL: https://, http:// (needs a digest) or file:///absolute/path in the operator's file system; without user or password. A file
	// packed with xz, gzip or zstd is unpacked, whatever its name.
	URL string `yaml:"url"`
	// SHA256 of the file as served: 64 hexadecimal digits.
	//
	// In lower case in a loaded file.
	SHA256 string `yaml:"sha256"`
	// SHA512 of the file as served: 128 hexadecimal digits.
	//
	// In lower case in a loaded file.
	SHA512 string `yaml:"sha512"`
	// Checksums is the URL, https:// or file:///, of a file that lists the digest of the file that URL names: as sha256sum and sha512sum
	// print it, BSD's form too.
	Checksums string `yaml:"checksums"`
	// DigestOf is served, or unpacked where the digest is of what the file holds; default served.
	DigestOf string `yaml:"digestOf"`
	// Format is qcow2 or raw, of what is unpacked; read from the content when left out, and checked against it otherwise.
	Format string `yaml:"format"`
	// Arch is x86_64 or aarch64; default x86_64.
	Arch string `yaml:"arch"`
	// Firmware is bios or efi; default bios.
	Firmware string `yaml:"firmware"`
}

// Mirror is how one server of images is asked. Its files are read anew at each request; paths are absolute, or relative to the folder of the
// providers file; in a loaded file they are absolute.
type Mirror struct {
	// Host is the server: a name or an address, with :port where that is not the scheme's own. A server that it redirects to needs a
	// mirror of its own.
	//
	// In a loaded file in lower case, with its port only where the file has one.
	Host string `yaml:"host"`
	// CAFile holds the certificates, in PEM, that this server's is checked against, instead of the system's.
	CAFile string `yaml:"caFile"`
	// BasicAuthFile holds user:password on one line. It is sent to this server alone, over https alone.
	BasicAuthFile string `yaml:"basicAuthFile"`
	// BearerTokenFile holds a token on one line, instead of BasicAuthFile.
	BearerTokenFile string `yaml:"bearerTokenFile"`
	// Proxy to reach this server through: http:// or https://, without user or password. The proxies of the environment are never used.
	Proxy string `yaml:"proxy"`
}

// Quota bounds what the Proxies of each of some namespaces may have of an entry. It holds for Proxies that are placed from then on.
type Quota struct {
	// Namespaces that it is for, each on its own; "*" for every one that no other quota of the entry names. None stands in two quotas.
	Namespaces []string `yaml:"namespaces"`
	// Instances that a namespace may have; no bound when left out.
	Instances *int64 `yaml:"instances"`
	// VCPUs of all its instances together; no bound when left out. For entries whose instances are machines.
	VCPUs *int64 `yaml:"vcpus"`
	// MemoryMiB of all its instances together, in MiB; no bound when left out. For entries whose instances are machines.
	MemoryMiB *int64 `yaml:"memoryMiB"`
}

// AddressPool is addresses of one network for guests.
type AddressPool struct {
	// Hosts of the entry whose guests are on this network; all when left out.
	Hosts []string `yaml:"hosts"`
	// Network that the addresses lie in, in CIDR notation, without host bits.
	Network string `yaml:"network"`
	// Addresses for guests: an address, a range such as 198.51.100.16-198.51.100.31, or a network in CIDR notation, of which the Gateway, the
	// Nameservers and the addresses that IPv4 reserves are left out. At most 4,096 in all, and none twice in the file.
	Addresses []string `yaml:"addresses"`
	// Gateway of the guests' default route, in Network.
	Gateway string `yaml:"gateway"`
	// Nameservers that the guests ask; at least one, of either family.
	Nameservers []string `yaml:"nameservers"`
	// MACs that go with addresses, by address, where the network wants that; others get one by their Proxy's UID. Unicast, such as
	// 52:54:00:12:34:56, and none twice in the file.
	MACs map[string]string `yaml:"macs"`
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
