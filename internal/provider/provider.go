// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
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
	// Leftovers are what the host holds of this cluster and entry that looks as if nothing needed it. That is no verdict: whoever calls waits
	// until it has looked so for a good while.
	Leftovers(ctx context.Context, host string) ([]Leftover, error)
	// Reclaim looks at each again, removes what is still a leftover and referred to by nothing at all on the host, and says what became of
	// each. dryRun removes nothing. The error is the host's, and says that nothing more was done.
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
)

// Leftover is a volume on a host that looks as if nothing needed it.
type Leftover struct {
	Kind LeftoverKind
	// Object that would be removed, by name.
	Object string
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
	// UserData is the user's own cloud-init data; Software CloudInit only.
	UserData Secret
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
}
