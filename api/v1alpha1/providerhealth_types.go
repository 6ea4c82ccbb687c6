// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProviderHealth is how the hosts of one entry of the providers file are. The operator makes one for each entry, names it as the entry, keeps
// its status, and deletes it once the entry is gone. There is nothing to set in it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=providerhealths,categories=egress,shortName=ph
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Hosts",type=string,JSONPath=`.status.readyHosts`
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.instances`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProviderHealth struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is what the operator sees.
	// +optional
	Status ProviderHealthStatus `json:"status,omitempty"`
}

// ProviderHealthList is a list of ProviderHealths.
//
// +kubebuilder:object:root=true
type ProviderHealthList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProviderHealth `json:"items"`
}

// ProviderHealthStatus is what the operator sees of one entry.
type ProviderHealthStatus struct {
	// Type of the entry: kvm2, local, simulated.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Type string `json:"type,omitempty"`
	// Conditions: Ready; ImagesHeld where the entry names images that its hosts shall hold; CollectorStopped while the collector waits for somebody.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ReadyHosts of all hosts, as in 2/3.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	ReadyHosts string `json:"readyHosts,omitempty"`
	// Instances on all hosts.
	// +optional
	Instances int32 `json:"instances,omitempty"`
	// Hosts of the entry, in the order of the providers file.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Hosts []HostHealth `json:"hosts,omitempty"`
	// Collector is what the collector saw and did at this entry's hosts.
	// +optional
	Collector *CollectorStatus `json:"collector,omitempty"`
}

// CollectorStatus is what the collector saw and did at one entry's hosts.
type CollectorStatus struct {
	// Removed are the instances that were removed without anybody's approval in the last 24 hours, by the hour.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Removed []RemovedInstances `json:"removed,omitempty"`
	// Pending instances, by host and UID, are counted in Removed already, and not known to be gone: the operator may have ended meanwhile.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=256
	Pending []string `json:"pending,omitempty"`
	// Stopped: nothing of this entry is removed until somebody approves it, or there is nothing to remove.
	// +optional
	Stopped *CollectorStop `json:"stopped,omitempty"`
	// Foreign leftovers bear names as ours are, and are of another cluster, of an entry that the providers file does not have, or carry no mark.
	// They are never touched.
	// +optional
	Foreign *ForeignLeftovers `json:"foreign,omitempty"`
}

// RemovedInstances counts the instances that were removed within one hour.
type RemovedInstances struct {
	// Hour that begins then.
	// +required
	Hour metav1.Time `json:"hour"`
	// Count of instances.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
}

// CollectorStop is why the collector stopped, and what approves that it goes on.
type CollectorStop struct {
	// Since when.
	// +required
	Since metav1.Time `json:"since"`
	// Reason: there are more instances without a Proxy than may go in a day, or the API lists no Proxy at all.
	// +required
	// +kubebuilder:validation:Enum=TooManyLeftovers;NoProxies
	Reason string `json:"reason"`
	// Token stands for exactly these instances: as the value of the annotation egressproxies.dev/approve-collection it approves that they are removed.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`
	// Instances without a Proxy that would be removed.
	// +required
	Instances int32 `json:"instances"`
	// Allowed is how many may be removed in 24 hours without anybody's approval.
	// +required
	Allowed int32 `json:"allowed"`
	// Removed without anybody's approval in the 24 hours before.
	// +optional
	Removed int32 `json:"removed,omitempty"`
	// Names of the first few, as host/domain.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Names []string `json:"names,omitempty"`
}

// ForeignLeftovers are counted, and the first few named.
type ForeignLeftovers struct {
	// Count on the hosts that could be asked.
	// +required
	Count int32 `json:"count"`
	// Names of the first few, as host/object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Names []string `json:"names,omitempty"`
}

// HostHealth is how one host is.
type HostHealth struct {
	// Name in the providers file.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Reason is the one word for the state: Ready hosts take new instances.
	// +required
	// +kubebuilder:validation:Enum=Ready;Unknown;Unreachable;Timeout;Unauthorized;Incapable;Degraded;Duplicate
	Reason string `json:"reason"`
	// Message says what happened and what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// LastChange is when the reason became what it is.
	// +required
	LastChange metav1.Time `json:"lastChange"`
	// Unschedulable: the providers file says that no new instance goes here.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// HostName is what the machine calls itself, as last known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HostName string `json:"hostName,omitempty"`
	// LibvirtVersion of the host, as last known.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	LibvirtVersion string `json:"libvirtVersion,omitempty"`
	// Via is how libvirt's socket on the host was last reached: socket forwarding, or a command.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Via string `json:"via,omitempty"`
	// PoolAvailableGiB is the room in the pool beyond the entry's reserve, as seen at poolSeen. A change that nobody would act on is not
	// written.
	// +optional
	PoolAvailableGiB *int64 `json:"poolAvailableGiB,omitempty"`
	// PoolSeen is when the pool was seen so.
	// +optional
	PoolSeen *metav1.Time `json:"poolSeen,omitempty"`
	// Instances of this entry on the host, as last known.
	// +optional
	Instances int32 `json:"instances,omitempty"`
}
