// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// Provider makes the instances of one entry. The package comment is its contract.
type Provider interface {
	// Create makes the instance, or goes on making it, and starts it. It returns the instance once it runs; InProgress while an
	// image is on its way.
	Create(ctx context.Context, spec InstanceSpec) (Instance, error)
	// Get reads the instance.
	Get(ctx context.Context, ref InstanceRef) (Instance, error)
	// Delete removes the instance and its volumes; call it until it returns NotFound.
	Delete(ctx context.Context, ref InstanceRef) error
	// List returns every instance of this cluster and entry, on all hosts: complete, or an error.
	List(ctx context.Context) ([]Instance, error)
	// Hosts says what is known of each host of the entry, for placement. It does no I/O.
	Hosts() []HostState
}

// Watcher is a provider that tells when something about an instance changed, so that its Proxy need not wait for the next poll.
type Watcher interface {
	// Watch calls notify with the UID of the Proxy concerned until ctx ends. notify must not block. An empty UID means: anything
	// may have changed. What is neither is not about a Proxy, but about a host.
	Watch(ctx context.Context, notify func(uid string)) error
}

// Retainer is a provider that can let an instance live on without its Proxy.
type Retainer interface {
	// Retain marks the instance as retained: no collector takes it from then on.
	Retain(ctx context.Context, ref InstanceRef) error
}

// Puller is a provider whose hosts can hold images before a Proxy asks for one.
type Puller interface {
	// PrePull sees to it that a host holds the images that the entry names for this: nil when it does, InProgress while one is on its way. It
	// does not wait for that: call it again.
	PrePull(ctx context.Context, host string) error
}

// SpaceReclaimer is a provider whose hosts come to hold what no instance needs any more.
type SpaceReclaimer interface {
	// Leftovers are what the host holds of this cluster and entry that looks as if nothing needed it: complete, or an error. That is no
	// verdict: whoever calls waits until it has looked so for a good while. Every instance is among them, as hosts know nothing of Proxies: one is
	// needed where a Proxy has its UID.
	Leftovers(ctx context.Context, host string) ([]Leftover, error)
	// Reclaim looks at each again, removes what is still a leftover, is ours by its mark or its name, and is referred to by nothing at all on the
	// host, and says what became of each. It never removes what its mark calls retained. dryRun removes nothing. The error is the host's, and
	// says that nothing more was done.
	Reclaim(ctx context.Context, host string, chosen []Leftover, dryRun bool) ([]Reclaimed, error)
}

// LeftoverKind says what a Leftover is.
type LeftoverKind string

// Kinds of leftovers.
const (
	// LeftoverUnfinished is a volume that was never published, or is not any more. Removing it frees its bytes.
	LeftoverUnfinished LeftoverKind = "unfinished volume"
	// LeftoverUnwanted is a published volume that no Create would use now. Removing it takes it out of use: it is unfinished then.
	LeftoverUnwanted LeftoverKind = "unwanted volume"
	// LeftoverMarker publishes a volume that is gone.
	LeftoverMarker LeftoverKind = "marker without its volume"
	// LeftoverUnreadable has a name of ours that cannot be understood. It is never removed.
	LeftoverUnreadable LeftoverKind = "volume with an unreadable name"
	// LeftoverInstance is an instance: its domain, with the volumes of its own. It is needed where a Proxy has its UID.
	LeftoverInstance LeftoverKind = "instance"
	// LeftoverDisk is a volume of an instance's own whose domain is gone, or never came to be. It is needed where a Proxy has its UID.
	LeftoverDisk LeftoverKind = "volume of an instance"
	// LeftoverNewer is an instance whose mark a newer version of the operator wrote. It is never removed.
	LeftoverNewer LeftoverKind = "instance with a newer mark"
	// LeftoverForeign bears a name as ours are, and is of another cluster or entry, or carries no mark. It is never removed.
	LeftoverForeign LeftoverKind = "foreign"
)

// Leftover is something on a host that looks as if nothing needed it. Two that are equal are the same, unchanged.
type Leftover struct {
	Kind LeftoverKind
	// Object that would be removed, by name: a volume or a domain.
	Object string
	// UID of the Proxy that it was made for, in 32 hexadecimal digits; LeftoverInstance and LeftoverDisk only.
	UID string
	// Retained instances live on without their Proxy.
	Retained bool
	// Entry that it belongs to, as far as its name or its mark says; LeftoverForeign only.
	Entry string
	// Bytes that it takes on the host; LeftoverUnfinished only. What grows is being written.
	Bytes int64
	// Why it looks so.
	Why string
}

// Reclaimed is what became of a Leftover.
type Reclaimed struct {
	Leftover
	// Removed; with dryRun, it would have been.
	Removed bool
	// Kept says why it was not removed; empty when it was.
	Kept string
	// Moot: it was kept because it is no leftover any more, so that nobody needs to hear of it.
	Moot bool
}

// AddressDoubter is a provider that remembers the addresses of its instances.
type AddressDoubter interface {
	// DoubtAddresses has the addresses of an instance read anew by the next Get: nothing answers at the one in use. It does no I/O.
	DoubtAddresses(ref InstanceRef)
}

// Consoler is a provider whose guests have a console.
type Consoler interface {
	// HoldConsole has the console of an instance read from now on, through restarts of the guest, and the last 64 KiB kept. It does no I/O, and does
	// nothing where that is so already.
	HoldConsole(ref InstanceRef)
	// ReleaseConsole ends that; what was kept stays for a while.
	ReleaseConsole(ref InstanceRef)
	// Console writes what is kept of a console to w, with follow also what comes, until ctx ends. It may hold secrets, and whatever a guest
	// likes to send to a terminal.
	Console(ctx context.Context, ref InstanceRef, follow bool, w io.Writer) error
}

// Closer is a provider with connections or background work.
type Closer interface {
	// Close ends background work and connections, and returns when no goroutine is left.
	Close()
}

// InstanceRef names one instance: where it is, and whose.
type InstanceRef struct {
	// Host is the name of the host in the providers file.
	Host string
	// UID of the Proxy, in any case and with any space around it.
	UID string
}

// InstanceSpec is what a provider needs to know to make an instance.
type InstanceSpec struct {
	InstanceRef
	// Namespace and Name of the Proxy: for people, never for identity.
	Namespace, Name string
	Shape
	// Credentials that clients must present; a running guest takes new ones over the agent's control channel.
	Credentials Credentials
	// ControlKey opens the agent's control channel: 32 bytes, derived from the cluster's key and the Proxy's UID.
	ControlKey Secret
	// UserData is the user's own cloud-init data; Software Agent and CloudInit only.
	UserData Secret
	// NIC is what an address pool gives the guest.
	NIC NIC
}

// Shape is what an instance is made with and cannot take over while it runs. The mark keeps it, so that drift is seen.
type Shape struct {
	// Image is what the instance boots.
	Image Image
	// VCPUs is at least 1.
	VCPUs int
	// MemoryMiB is the guest's memory in MiB.
	MemoryMiB int
	// DiskSizeGiB is the size of the guest's disk in GiB.
	DiskSizeGiB int
	// Software says what serves in the guest.
	Software Software
	// Port is where the proxy in the guest listens.
	Port int
	// UserDataSHA256 of the user's own cloud-init data, in hexadecimal; empty without.
	UserDataSHA256 string
	// EntryDataSHA256 of what the entry gives every guest, in hexadecimal; empty without.
	EntryDataSHA256 string
	// DestinationsSHA256 of what the agent may reach beyond the public Internet, in hexadecimal; empty without our agent, and where it is not
	// known: marks had none at first.
	DestinationsSHA256 string
}

// Software says what serves in the guest.
type Software string

// Software types, as in the API.
const (
	SoftwareAgent     Software = "Agent"
	SoftwareCloudInit Software = "CloudInit"
	SoftwareNone      Software = "None"
)

// Image is a key of the entry's catalogue, or a URL with its digest.
type Image struct {
	// Name is a key of the catalogue; empty when URL is set.
	Name string
	// URL without userinfo, and SHA256 of the file that it serves, in hexadecimal.
	URL, SHA256 string
}

// String is what people and marks see: the key, or the URL without its query, which may hold a token.
func (i Image) String() string {
	if i.Name != "" {
		return i.Name
	}
	return config.RedactURL(i.URL)
}

// Credentials of one proxy.
type Credentials struct {
	Username string
	Password Secret
}

// State of an instance, as its host reports it.
type State string

// States. Unknown is not a state: a host that does not answer is an error.
const (
	// StateStopped: defined, and not running.
	StateStopped State = "Stopped"
	// StateRunning: the guest's processors run.
	StateRunning State = "Running"
	// StatePaused: stopped for a while; StateReason says why. Never a cause to replace an instance.
	StatePaused State = "Paused"
	// StateCrashed: the guest is gone for good; a cause to replace the instance.
	StateCrashed State = "Crashed"
)

// Instance is what a provider found.
type Instance struct {
	InstanceRef
	// Namespace and Name of the Proxy, as the mark says.
	Namespace, Name string
	// ProviderID is hosts/<host>/domains/<name>.
	ProviderID string
	State      State
	// StateReason is the host's word for why: `paused: I/O error (no space)`.
	StateReason string
	// Addresses of the NIC that we assigned, loopback and link-local left out; the preferred one first.
	Addresses []netip.Addr
	// NIC that the instance was made with, as the mark says.
	NIC NIC
	// Shape that the instance was made with, as the mark says.
	Shape Shape
	// AgentVersion that the instance was made with; empty without our agent.
	AgentVersion string
	// Created is when the mark was written.
	Created time.Time
	// Started is when the guest was last started, as far as known; zero when not.
	Started time.Time
	// Retained: lives on without its Proxy.
	Retained bool
}

// HostState is what a provider last knew of one host.
type HostState struct {
	// Name in the providers file.
	Name string
	// Ready hosts take new instances.
	Ready bool
	// Reason is a word of ProviderHealth: Ready, Unknown, Unreachable, Timeout, Unauthorized, Incapable, Degraded, Duplicate.
	Reason string
	// Message is for people.
	Message string
	// Unschedulable: the file says that no new instance goes here.
	Unschedulable bool
	// FreeMemoryMiB and PoolAvailableGiB, where RoomKnown; else the latter is what was last known.
	FreeMemoryMiB, PoolAvailableGiB int64
	RoomKnown                       bool
	// PoolSeen is when the pool was seen to have that room; zero when never.
	PoolSeen time.Time
	// HostName is what the machine calls itself, and LibvirtVersion its daemon's, as last known; not trusted, bounded in length, empty where
	// there is none.
	HostName, LibvirtVersion string
	// Via is how the host's daemon was last reached, where there is more than one way.
	Via string
	// Instances counts this entry's instances, including those being made.
	Instances int
	// MaxInstances is how many it takes; 0 where their number has no limit of its own.
	MaxInstances int
	// CPUs are its processors, as last known; 0 where nobody counts them. MaxVCPUs is how many vCPUs its guests may have together; 0 for no bound.
	CPUs, MaxVCPUs int
	// Lacks says what keeps the host from running an image, by the image's key in the entry's catalogue, and by "" for images that Proxies bring;
	// those that it can run are not in it.
	Lacks map[string]string
}
