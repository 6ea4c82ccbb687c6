// SPDX-License-Identifier: Apache-2.0

package provider

// Topics of what a host needs, in the order in which one needs the other.
const (
	TopicConnection   = "connection"
	TopicKeys         = "keys"
	TopicSocket       = "socket"
	TopicLibvirt      = "libvirt"
	TopicCapabilities = "capabilities"
	TopicPool         = "pool"
	TopicNetwork      = "network"
	TopicSpace        = "space"
	TopicImage        = "image"
	TopicHost         = "host"
)

// Finding is one thing that a host needs, and how it is.
type Finding struct {
	// Topic is one of those above.
	Topic string
	// Detail says what was found, where it is as it should be.
	Detail string
	// Err says what is wrong and what to do; nil where nothing is.
	Err error
}
