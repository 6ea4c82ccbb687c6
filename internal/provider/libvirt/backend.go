// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"io"
	"net/netip"
)

// Backend is one host's libvirt daemon, in libvirt's own terms: small calls, each one request or a bounded few, no policy, no retry.
//
// A *DaemonError is the daemon's own answer. Every other error (a dead link, an ended context) says nothing about what the
// host holds. Volumes are those of the entry's one pool. The in-memory Backend of package libvirttest and the real ones pass one contract suite.
type Backend interface {
	// Host describes the daemon and its machine.
	Host(ctx context.Context) (HostInfo, error)
	// DomainCapabilities is the domain capabilities XML for a virtualisation type ("kvm", "qemu"), architecture and machine type.
	// A type that the host lacks is a DaemonError.
	DomainCapabilities(ctx context.Context, virtType, arch, machine string) (string, error)
	// CheckNetwork says whether a libvirt network of that name is active: a DaemonError with CodeNoNetwork where there is none, and
	// with CodeOperationInvalid where it is not active.
	CheckNetwork(ctx context.Context, name string) error
	// CheckBridge says whether the host has a bridge of that name: a DaemonError with CodeNoInterface where it has none. Many
	// daemons cannot say: nil then.
	CheckBridge(ctx context.Context, name string) error

	// Pool describes the entry's pool as the daemon knows it; refresh rescans it first. A refresh that failed leaves the pool inactive.
	Pool(ctx context.Context, refresh bool) (PoolInfo, error)
	// StartPool starts the inactive pool.
	StartPool(ctx context.Context) error
	// Volumes lists the pool's volumes by name, complete or an error.
	Volumes(ctx context.Context) ([]string, error)
	// Volume describes one volume of the pool.
	Volume(ctx context.Context, name string) (VolumeInfo, error)
	// CreateVolume makes a volume; atomic: CodeVolumeExists when there is one of that name.
	CreateVolume(ctx context.Context, xml string) error
	// Upload writes length bytes, at least 1, to the start of a volume; the file grows where it is shorter. Long runs of zeros become holes of the
	// file, but never its end, and what it held behind them is gone: it is for volumes that were just made. An upload that fails or
	// stalls harms no other call on this Backend. The error of r, where r failed, is in the chain of Upload's.
	Upload(ctx context.Context, name string, r io.Reader, length int64) error
	// DeleteVolume removes a volume.
	DeleteVolume(ctx context.Context, name string) error

	// Domains lists all domains of the daemon, running or not, in one call.
	Domains(ctx context.Context) ([]DomainInfo, error)
	// Domain describes one domain by name.
	Domain(ctx context.Context, name string) (DomainInfo, error)
	// DomainXML is the domain's inactive (persistent) XML.
	DomainXML(ctx context.Context, name string) (string, error)
	// LiveXML is the XML of a domain as it runs, with what backs its disks as far as the daemon knows; that of its definition where it is off.
	LiveXML(ctx context.Context, name string) (string, error)
	// Metadata is the element of a domain's metadata in the given namespace; CodeNoMetadata when it has none.
	Metadata(ctx context.Context, name, namespaceURI string) (string, error)
	// SetMetadata replaces that element in the persistent definition, and in the live one where the domain runs.
	SetMetadata(ctx context.Context, name, namespaceURI, key, xml string) error
	// Define makes or replaces a persistent domain. The daemon replaces silently: look first.
	Define(ctx context.Context, xml string) error
	// Start starts a domain, discarding a saved state.
	Start(ctx context.Context, name string) error
	// Resume lets a paused domain run on, and wakes one that its guest suspended.
	Resume(ctx context.Context, name string) error
	// Destroy ends a running domain at once.
	Destroy(ctx context.Context, name string) error
	// Undefine removes a domain's definition with everything that the daemon keeps beside it (saved state, snapshots'
	// and checkpoints' metadata, NVRAM, TPM state).
	Undefine(ctx context.Context, name string) error
	// InterfaceAddresses are a running domain's addresses as one source knows them.
	InterfaceAddresses(ctx context.Context, name string, source AddressSource) ([]Interface, error)

	// Events calls notify with the name of each domain that the daemon tells something of: its lifecycle, an I/O error, its guest's agent, its
	// metadata. An empty name means that anything may have changed, and is the first once the subscription holds. notify may be called from
	// any goroutine, and must not block. Events returns when the connection dies or ctx ends, and never nil.
	Events(ctx context.Context, notify func(domain string)) error
	// Console hands what a running domain's console says from now on to sink, which must neither block nor keep the bytes. It returns nil when
	// the guest is off; CodeOperationFailed where somebody reads it already, CodeOperationInvalid where the domain is off. It is meant for a
	// connection that nothing else waits for: see Dedicated.
	Console(ctx context.Context, name string, sink func([]byte)) error

	// Dedicated opens a connection of its own to the same daemon, for one long transfer and what follows it. After an upload that
	// failed it may be dead: clean up over the shared one.
	Dedicated(ctx context.Context) (Backend, error)
	// Close ends the connections. Calls after it fail with an error that is no DaemonError.
	Close()
}

// HostInfo describes a daemon and its machine.
type HostInfo struct {
	// Hostname of the machine, as it calls itself: not trusted, bounded in length.
	Hostname string
	// UUID of the machine, as the daemon knows it: with that of a pool it tells whether two hosts of the providers file are one.
	UUID string
	// LibvirtVersion is major*1,000,000 + minor*1,000 + release.
	LibvirtVersion uint64
	// Arch is the machine's architecture: x86_64, aarch64.
	Arch string
	// FreeMemoryMiB is the memory that new guests could use.
	FreeMemoryMiB int64
	// Via is how the daemon's socket is reached, where there is more than one way.
	Via string
	// CPUs is the number of processors.
	CPUs int
}

// PoolInfo describes a storage pool.
type PoolInfo struct {
	UUID string
	// Type is dir, fs, netfs, logical …
	Type string
	// Path of the directory that holds the volumes.
	Path   string
	Active bool
	// Capacity and Available in bytes; Available counts blocks that only root may use.
	Capacity, Available int64
}

// VolumeInfo describes a volume.
type VolumeInfo struct {
	Name string
	// Path of the file on the host.
	Path string
	// Format is raw, qcow2 …
	Format string
	// Capacity is the virtual size, Allocation what is in use, Physical the file's length; bytes. Physical is 0 when the daemon
	// does not say.
	Capacity, Allocation, Physical int64
	// BackingPath is the file that the volume is backed by, or empty.
	BackingPath string
}

// DomainInfo describes a domain's run state.
type DomainInfo struct {
	Name string
	UUID string
	// State and Reason are libvirt's numbers (virDomainState and the reason enum of that state).
	State, Reason int
	// Persistent domains have a definition; transient ones are gone once they stop.
	Persistent bool
	// Run is another number after each start, and 0 where the domain is off.
	Run int
}

// AddressSource says who is asked for a domain's addresses; the numbers are libvirt's.
type AddressSource int

// Address sources.
const (
	SourceLease AddressSource = 0
	SourceAgent AddressSource = 1
	SourceARP   AddressSource = 2
)

// Interface is one NIC of a guest with its addresses.
type Interface struct {
	// Name as the source calls it.
	Name string
	// MAC in lower case, colon-separated; empty when the source does not know.
	MAC       string
	Addresses []netip.Addr
}

// DaemonError is an answer of the daemon that is not a success.
type DaemonError struct {
	// Code is libvirt's virErrorNumber.
	Code int
	// Message is the daemon's own text, bounded in length.
	Message string
}

// Error shows text and code.
func (e *DaemonError) Error() string { return fmt.Sprintf("%s (libvirt error %d)", e.Message, e.Code) }

// The daemon's error numbers (virterror.h) that decide anything here.
const (
	CodeInternal             = 1
	CodeNoMemory             = 2
	CodeNoSupport            = 3
	CodeInvalidArg           = 8
	CodeOperationFailed      = 9
	CodeXMLError             = 27
	CodeXMLDetail            = 35
	CodeSystemError          = 38
	CodeRPC                  = 39
	CodeNoDomain             = 42
	CodeNoNetwork            = 43
	CodeAuthFailed           = 45
	CodeNoStoragePool        = 49
	CodeNoVolume             = 50
	CodeOperationInvalid     = 55
	CodeNoInterface          = 57
	CodeConfigUnsupported    = 67
	CodeOperationTimeout     = 68
	CodeNoMetadata           = 80
	CodeOperationUnsupported = 84
	CodeAgentUnresponsive    = 86
	CodeResourceBusy         = 87
	CodeAccessDenied         = 88
	CodeVolumeExists         = 90
)
