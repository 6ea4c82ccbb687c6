// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a Proxy. Reconciling and Stalled are kstatus's: they are present only while they are True, so that
// `kubectl wait`, Flux, Argo CD and friends read a Proxy as they read their own objects.
const (
	// ConditionProvisioned is True while the Proxy's instance runs on its host and has an address. It stays True while the host cannot be
	// asked: only what the host itself says turns it.
	ConditionProvisioned = "Provisioned"
	// ConditionHealthy is True while requests go through the proxy, and requests without credentials are refused.
	ConditionHealthy = "Healthy"
	// ConditionExitVerified is True while the exit address is known and is one that spec.expectedExit allows.
	ConditionExitVerified = "ExitVerified"
	// ConditionReady is True while the Proxy may be used: provisioned, healthy, exit verified and not cordoned.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works towards the spec (kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while the operator cannot go on until somebody changes something (kstatus).
	ConditionStalled = "Stalled"
)

// Reasons of Provisioned.
const (
	// ReasonPending: no host is chosen yet.
	ReasonPending = "Pending"
	// ReasonQuotaExceeded: the Proxy's namespace may have no more of the entry.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonFetchingImage: the base image, or the agent, is on its way to the host.
	ReasonFetchingImage = "FetchingImage"
	// ReasonCreating: overlay, seed and domain are being made.
	ReasonCreating = "Creating"
	// ReasonBooting: the domain runs, and its address is not known yet.
	ReasonBooting = "Booting"
	// ReasonRunning: the domain runs and has an address.
	ReasonRunning = "Running"
	// ReasonDrifted: the instance runs, and the spec asks for something that it does not have.
	ReasonDrifted = "Drifted"
	// ReasonPaused: the guest is paused; the message says why.
	ReasonPaused = "Paused"
	// ReasonDomainDown: the domain is shut off or crashed.
	ReasonDomainDown = "DomainDown"
	// ReasonUnknownEntry: spec.provider names no entry of the providers file.
	ReasonUnknownEntry = "UnknownEntry"
	// ReasonUnknownHost: placement.host (or status.host) names no host of the entry.
	ReasonUnknownHost = "UnknownHost"
	// ReasonUnknownImage: placement.image names no image of the entry.
	ReasonUnknownImage = "UnknownImage"
	// ReasonNamespaceNotAllowed: the entry does not serve this namespace.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonInvalidSpec: the spec cannot be carried out; the message says which field.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonInvalidSecret: the Secret named in auth.secretRef is missing or unusable.
	ReasonInvalidSecret = "InvalidSecret"
	// ReasonExternal: the address is somebody else's; nothing is provisioned.
	ReasonExternal = "External"
	// ReasonDeleting: the instance is being removed.
	ReasonDeleting = "Deleting"
	// ReasonDeleteFailed: the instance could not be removed; the finalizer stays.
	ReasonDeleteFailed = "DeleteFailed"
	// ReasonAbandoned is the reason of the event that says what AnnotationAbandon left behind.
	ReasonAbandoned = "Abandoned"

	// The provider's error kinds, where no reason above says more.

	// ReasonCapacity: no host has room; tried again, elsewhere where possible.
	ReasonCapacity = "Capacity"
	// ReasonUnauthorized: credentials or host keys were refused.
	ReasonUnauthorized = "Unauthorized"
	// ReasonPermanent: will not succeed until spec, configuration or host change.
	ReasonPermanent = "Permanent"
	// ReasonConflict: something of that name exists and is not ours.
	ReasonConflict = "Conflict"
	// ReasonTransient: failed, and is tried again.
	ReasonTransient = "Transient"
)

// Reasons of Healthy, ExitVerified and Ready.
const (
	// ReasonProbeSucceeded: a request went through, and one without credentials was refused.
	ReasonProbeSucceeded = "ProbeSucceeded"
	// ReasonNotProbed: there is nothing to probe yet.
	ReasonNotProbed = "NotProbed"
	// ReasonNoAddress: the guest has not reported an address.
	ReasonNoAddress = "NoAddress"
	// ReasonPortClosed: nothing answers at the endpoint.
	ReasonPortClosed = "PortClosed"
	// ReasonAuthFailed: the proxy refused valid credentials.
	ReasonAuthFailed = "AuthFailed"
	// ReasonOpenProxy: the proxy served a request without credentials.
	ReasonOpenProxy = "OpenProxy"
	// ReasonEgressFailed: the proxy answers, and its requests do not reach the reflector.
	ReasonEgressFailed = "EgressFailed"
	// ReasonReflectorDown: the reflector does not answer the operator itself either: no proxy is to blame.
	ReasonReflectorDown = "ReflectorDown"
	// ReasonManyFailing: more than half of the proxies fail at once, on several hosts: for five minutes nothing is held against any of them.
	ReasonManyFailing = "ManyFailing"
	// ReasonExitLearned: the exit address is known, and no expectation is set.
	ReasonExitLearned = "ExitLearned"
	// ReasonExitExpected: the exit address is one of those expected.
	ReasonExitExpected = "ExitExpected"
	// ReasonExitMismatch: the exit address is not one of those expected.
	ReasonExitMismatch = "ExitMismatch"
	// ReasonCordoned: spec.cordoned keeps the Proxy out of rotation.
	ReasonCordoned = "Cordoned"
	// ReasonReady: in rotation.
	ReasonReady = "Ready"
	// ReasonProgressing is Reconciling's reason while work goes on.
	ReasonProgressing = "Progressing"
)

// ConditionImagesHeld of a ProviderHealth is True while every host that can holds the images that its entry names under prePull. Entries that name
// none do not have it.
const ConditionImagesHeld = "ImagesHeld"

// Reasons of a ProviderHealth's conditions.
const (
	// ReasonAllHostsReady: every host takes new instances.
	ReasonAllHostsReady = "AllHostsReady"
	// ReasonSomeHostsNotReady: at least one host takes new instances, and at least one does not.
	ReasonSomeHostsNotReady = "SomeHostsNotReady"
	// ReasonNoHostReady: no host takes new instances.
	ReasonNoHostReady = "NoHostReady"
	// ReasonHostsNotSeen: no host has been looked at yet.
	ReasonHostsNotSeen = "HostsNotSeen"
	// ReasonHeld: every host that can holds the images.
	ReasonHeld = "Held"
	// ReasonPulling: images are on their way to hosts.
	ReasonPulling = "Pulling"
	// ReasonPullFailed: an image cannot be brought to a host; tried again.
	ReasonPullFailed = "PullFailed"
)

// ConditionCollectorStopped of a ProviderHealth is True while the collector removes nothing of the entry until somebody approves it. It is present
// only then.
const ConditionCollectorStopped = "CollectorStopped"

// Reasons of CollectorStopped.
const (
	// ReasonTooManyLeftovers: more instances have no Proxy than may be removed in 24 hours unasked.
	ReasonTooManyLeftovers = "TooManyLeftovers"
	// ReasonNoProxies: instances have no Proxy, and the API lists no Proxy at all.
	ReasonNoProxies = "NoProxies"
)

// Reasons of the collector's events, which stand at the ProviderHealth of the entry, or at a Proxy.
const (
	// ReasonCollectorResumed: the collector goes on.
	ReasonCollectorResumed = "CollectorResumed"
	// ReasonInstanceVanished: the host does not have the instance of a Proxy any more.
	ReasonInstanceVanished = "InstanceVanished"
	// ReasonCollected: what nothing needs was removed: an instance without a Proxy, a volume, a marker.
	ReasonCollected = "Collected"
	// ReasonWouldCollect: the collector runs dry, and would have done so.
	ReasonWouldCollect = "WouldCollect"
	// ReasonCollectFailed: it could not be done; tried again.
	ReasonCollectFailed = "CollectFailed"
	// ReasonLeftAlone: something of ours cannot be understood, or is in use by somebody else.
	ReasonLeftAlone = "LeftAlone"
)

// Reasons of events at ProviderHealths that are about the providers file.
const (
	// ReasonFileInForce: a changed providers file is in force.
	ReasonFileInForce = "ProvidersFileInForce"
	// ReasonFileRefused: the providers file that is there cannot be used; the one before stays in force.
	ReasonFileRefused = "ProvidersFileRefused"
)

// Names that the operator puts on objects.
const (
	// Finalizer keeps a Proxy until its instance is gone.
	Finalizer = "egressproxies.dev/instance"
	// AnnotationAbandon, set to AbandonConfirmed on a Proxy that is being deleted, gives up on its instance: the finalizer goes, and what
	// is left behind is said in an event.
	AnnotationAbandon = "egressproxies.dev/abandon"
	// AbandonConfirmed is the only value of AnnotationAbandon that acts.
	AbandonConfirmed = "i-accept-that-the-instance-may-be-left-behind"
	// AnnotationApproveCollection, set on a ProviderHealth to the token of its status.collector.stopped, lets the collector remove what that token
	// stands for. It approves nothing else, and no later stop.
	AnnotationApproveCollection = "egressproxies.dev/approve-collection"
	// LabelProxy marks objects that the operator made for a Proxy, with the Proxy's name.
	LabelProxy = "egressproxies.dev/proxy"
)

// Keys of a credentials Secret (type kubernetes.io/basic-auth).
const (
	SecretKeyUsername = "username"
	SecretKeyPassword = "password"
)
