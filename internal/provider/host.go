// SPDX-License-Identifier: Apache-2.0

package provider

// Reasons of a host's state. The set is closed.
const (
	// HostReady takes new instances.
	HostReady = "Ready"
	// HostUnknown has not been looked at yet.
	HostUnknown = "Unknown"
	// HostUnreachable does not answer, or the way to it is broken.
	HostUnreachable = "Unreachable"
	// HostTimeout answers too slowly: a deadline, and nothing else, ended the look.
	HostTimeout = "Timeout"
	// HostUnauthorized refuses us, or is not who it should be.
	HostUnauthorized = "Unauthorized"
	// HostIncapable lacks something that every instance needs.
	HostIncapable = "Incapable"
	// HostDegraded answers, and some of its answers are errors.
	HostDegraded = "Degraded"
	// HostDuplicate is another host of the providers file under a second name.
	HostDuplicate = "Duplicate"
)
