// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proxy is one exit: a VM that the operator makes and keeps on a host of an entry, or an external address that somebody else
// runs.
//
// What a change to a live Proxy does, as each field says too:
//
//	spec.provider, whether external       Immutable: refused; make a new Proxy
//	spec.external.*                       live: probed anew at once
//	spec.placement.*, spec.software.*,    waits for a new instance: kept out of the one that runs, and shown with each field as reason
//	spec.port                             Drifted on the condition Provisioned; an instance that is made anew, for whatever reason, has it
//	spec.auth.secretRef, and its Secret   live: handed to the running guest; Drifted while the guest cannot take it
//	spec.credentialsOverlapSeconds        live: 0 ends an overlap that goes on
//	spec.probe, spec.expectedExit,        live: from the next probe on
//	spec.mode
//	spec.cordoned, spec.deletionPolicy    live: at once
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=egress,shortName=px
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Exit",type=string,JSONPath=`.status.exitIPs[0]`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Progress",type=integer,JSONPath=`.status.progress`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.image`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name of a Proxy has at most 63 characters"
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	// +required
	Spec ProxySpec `json:"spec"`
	// Status is what the operator sees.
	// +optional
	Status ProxyStatus `json:"status,omitempty"`
}

// ProxyList is a list of Proxies.
//
// +kubebuilder:object:root=true
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Proxy `json:"items"`
}

// ProxySpec is what the user wants of one exit.
//
// +kubebuilder:validation:XValidation:rule="has(self.provider) != has(self.external)",message="set exactly one of spec.provider (an entry of the providers file) and spec.external (an address that somebody else runs)"
// +kubebuilder:validation:XValidation:rule="has(self.provider) == has(oldSelf.provider)",message="a Proxy cannot change between provider and external: make a new Proxy"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.placement)",message="spec.placement belongs to spec.provider: an external proxy is not placed"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.software)",message="spec.software belongs to spec.provider: nothing is installed in an external proxy"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || has(self.auth)",message="an external proxy needs spec.auth.secretRef: proxies without credentials are refused"
type ProxySpec struct {
	// Provider names the entry of the providers file that makes the instance. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.provider is immutable: make a new Proxy with the other provider"
	Provider string `json:"provider,omitempty"`

	// External is a proxy that somebody else runs: probed and kept in rotation, never provisioned. All of it is Live; that there is one is
	// Immutable.
	// +optional
	External *ExternalProxy `json:"external,omitempty"`

	// Placement says where and how large the instance is. Waits for a new instance (Drifted).
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// Software says what serves in the guest. Waits for a new instance (Drifted).
	// +optional
	Software *Software `json:"software,omitempty"`

	// Port is where the proxy listens. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:default=3128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Auth names the credentials that clients must present. Without it the operator generates a Secret `<name>-credentials`. Live.
	// +optional
	Auth *Auth `json:"auth,omitempty"`

	// CredentialsOverlapSeconds is how long a running guest still takes the credentials before, when those of the Secret change; 0 ends them at
	// once, also while an overlap goes on. Live.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CredentialsOverlapSeconds *int32 `json:"credentialsOverlapSeconds,omitempty"`

	// Probe overrides how the proxy's health is found. Live.
	// +optional
	Probe *Probe `json:"probe,omitempty"`

	// ExpectedExit is where the exit address must lie before the Proxy becomes Ready. Live.
	// +optional
	ExpectedExit *ExpectedExit `json:"expectedExit,omitempty"`

	// Mode says whether the exit may be replaced by the operator: Rotating exits are, Pinned ones (allow-listed by a partner, say)
	// never are. Live.
	// +optional
	// +kubebuilder:default=Rotating
	Mode Mode `json:"mode,omitempty"`

	// Cordoned keeps the Proxy out of rotation, and everything else as it is. Live.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// DeletionPolicy says what becomes of the instance when the Proxy is deleted. Live.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// ExternalProxy is the address of a proxy that somebody else runs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || self.protocol == 'HTTPS'",message="spec.external.tls needs spec.external.protocol HTTPS"
type ExternalProxy struct {
	// Address is host:port; an IPv6 host stands in brackets. Credentials belong into spec.auth, never here. Live.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=261
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_.-]+|\\\\[[0-9A-Fa-f:.]+\\\\]):[0-9]{1,5}$')",message="spec.external.address must be host:port or [v6]:port, without a scheme and without user or password"
	Address string `json:"address"`
	// Protocol is what the proxy speaks to its clients. Live.
	// +required
	Protocol Protocol `json:"protocol"`
	// TLS configures protocol HTTPS. Live.
	// +optional
	TLS *ExternalTLS `json:"tls,omitempty"`
}

// ExternalTLS says how an HTTPS proxy's certificate is verified.
type ExternalTLS struct {
	// CASecretRef names a Secret with `ca.crt`; without it the system's roots are used. Live.
	// +optional
	CASecretRef *SecretReference `json:"caSecretRef,omitempty"`
	// ServerName overrides the name that the certificate must carry. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}

// Protocol is what a proxy speaks to its clients.
// +kubebuilder:validation:Enum=HTTP;HTTPS;SOCKS5
type Protocol string

// Protocols.
const (
	ProtocolHTTP   Protocol = "HTTP"
	ProtocolHTTPS  Protocol = "HTTPS"
	ProtocolSOCKS5 Protocol = "SOCKS5"
)

// Placement says where the instance runs, from what image, and how large it is. What is left out comes from the entry.
type Placement struct {
	// Host pins the instance to one host of the entry, by its name in the providers file. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Host string `json:"host,omitempty"`
	// Image is what the instance boots; the entry's default image when left out. Waits for a new instance (Drifted).
	// +optional
	Image *Image `json:"image,omitempty"`
	// VCPUs is the number of virtual CPUs. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	VCPUs int32 `json:"vcpus,omitempty"`
	// MemoryMiB is the guest's memory in MiB. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=262144
	MemoryMiB int32 `json:"memoryMiB,omitempty"`
	// DiskSizeGb is the size of the guest's disk in GiB; at least the image's virtual size. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	DiskSizeGb int32 `json:"diskSizeGb,omitempty"`
}

// Image is a key of the entry's catalogue, or a URL with its digest where the entry allows that.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.url)",message="set exactly one of placement.image.name (a key of the entry's images) and placement.image.url"
// +kubebuilder:validation:XValidation:rule="has(self.url) == has(self.sha256)",message="placement.image.url needs placement.image.sha256, and the other way round"
type Image struct {
	// Name is a key of the entry's images. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// URL of a disk image, where the entry allows it. It must not contain credentials. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/@]+(/.*)?$')",message="placement.image.url must be an http:// or https:// URL without user or password"
	URL string `json:"url,omitempty"`
	// SHA256 of the file that the URL serves, in hexadecimal. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`
}

// Software says what serves as the proxy in the guest.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'CloudInit' || has(self.userDataSecretRef)",message="software.type CloudInit needs software.userDataSecretRef"
// +kubebuilder:validation:XValidation:rule="self.type != 'None' || !has(self.userDataSecretRef)",message="software.type None leaves the guest alone: remove software.userDataSecretRef"
type Software struct {
	// Type: Agent is our own proxy; CloudInit is the user's own user data; None leaves the guest alone. Waits for a new instance (Drifted).
	// +optional
	// +kubebuilder:default=Agent
	Type SoftwareType `json:"type,omitempty"`
	// UserDataSecretRef names a Secret whose key `userData` is given to cloud-init, beside our agent with type Agent. The entry must allow the
	// namespace that. A change of its content is as one of its name. Waits for a new instance (Drifted).
	// +optional
	UserDataSecretRef *SecretReference `json:"userDataSecretRef,omitempty"`
}

// SoftwareType says what serves as the proxy in the guest.
// +kubebuilder:validation:Enum=Agent;CloudInit;None
type SoftwareType string

// Software types.
const (
	SoftwareAgent     SoftwareType = "Agent"
	SoftwareCloudInit SoftwareType = "CloudInit"
	SoftwareNone      SoftwareType = "None"
)

// Auth names the credentials of a proxy.
type Auth struct {
	// SecretRef names a Secret of this namespace with the keys `username` and `password` (type kubernetes.io/basic-auth). Live, as the Secret's
	// content is: a running agent takes other credentials, and Drifted says why where it did not. Other software is not told.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// SecretReference names a Secret of the same namespace.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Probe overrides how a proxy's health is found.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeoutSeconds) || !has(self.intervalSeconds) || self.timeoutSeconds <= self.intervalSeconds",message="probe.timeoutSeconds must not exceed probe.intervalSeconds"
type Probe struct {
	// IntervalSeconds between two probes of a healthy proxy. Live.
	// +optional
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// TimeoutSeconds of one probe. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// FailureThreshold is how many probes in a row must fail before a healthy proxy counts as unhealthy. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// SuccessThreshold is how many probes in a row must succeed before an unhealthy proxy counts as healthy again. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
}

// ExpectedExit is where the exit addresses must lie. A family without CIDRs is not checked.
//
// +kubebuilder:validation:XValidation:rule="has(self.ipv4) || has(self.ipv6)",message="spec.expectedExit needs ipv4 or ipv6"
type ExpectedExit struct {
	// IPv4 networks, in CIDR notation. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).ip().family() == 4)",message="spec.expectedExit.ipv4 takes IPv4 networks such as 203.0.113.0/24"
	IPv4 []string `json:"ipv4,omitempty"`
	// IPv6 networks, in CIDR notation. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).ip().family() == 6)",message="spec.expectedExit.ipv6 takes IPv6 networks such as 2001:db8::/32"
	IPv6 []string `json:"ipv6,omitempty"`
}

// Mode says whether the operator may replace an exit.
// +kubebuilder:validation:Enum=Rotating;Pinned
type Mode string

// DefaultCredentialsOverlap is spec.credentialsOverlapSeconds of a Proxy that does not say.
const DefaultCredentialsOverlap = 300 * time.Second

// Modes.
const (
	ModeRotating Mode = "Rotating"
	ModePinned   Mode = "Pinned"
)

// DeletionPolicy says what becomes of an instance when its Proxy is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// Deletion policies.
const (
	DeletionDelete DeletionPolicy = "Delete"
	DeletionRetain DeletionPolicy = "Retain"
)

// ProxyStatus is what the operator sees of one exit.
type ProxyStatus struct {
	// ObservedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Provisioned, Healthy, ExitVerified, Ready; Reconciling and Stalled while they hold.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Host of the entry that holds the instance. Written before the first change there; changes only once that host is known to be
	// clean.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host,omitempty"`
	// ProviderID of the instance: hosts/<host>/domains/<name>. Shown, never trusted: every change checks the instance's mark.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// Addresses that the instance has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Addresses []string `json:"addresses,omitempty"`
	// AssignedAddresses of the entry's address pools, which the guest is given instead of asking by DHCP. Written before the instance is made,
	// and kept for as long as the Proxy is on its host.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	AssignedAddresses []string `json:"assignedAddresses,omitempty"`
	// IP is the address in use.
	// +optional
	IP string `json:"ip,omitempty"`
	// Endpoint is where clients connect: host:port.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// ExitIPs are the addresses that the world sees, as a reflector reported them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ExitIPs []string `json:"exitIPs,omitempty"`
	// CredentialsSecret is the Secret that holds the credentials in force.
	// +optional
	CredentialsSecret string `json:"credentialsSecret,omitempty"`
	// Credentials says which content of that Secret is in force.
	// +optional
	Credentials *CredentialsStatus `json:"credentials,omitempty"`
	// Image that the instance boots: a key of the catalogue, or a URL.
	// +optional
	Image string `json:"image,omitempty"`
	// AgentVersion that runs in the guest.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// Progress of provisioning in percent, in steps of 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Progress int32 `json:"progress,omitempty"`
}

// CredentialsStatus says which credentials a proxy takes.
type CredentialsStatus struct {
	// SecretVersion is the metadata.resourceVersion of the Secret with the credentials in force. While it is another than the Secret has now, the
	// guest did not take the Secret's content yet, and Provisioned says why.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SecretVersion string `json:"secretVersion,omitempty"`
	// Since when they are in force.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// PreviousUntil is until when the credentials before them are taken as well; left out when they are not.
	// +optional
	PreviousUntil *metav1.Time `json:"previousUntil,omitempty"`
}
