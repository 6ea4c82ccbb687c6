// SPDX-License-Identifier: Apache-2.0

// Package image brings disk images from where they are published to where they are stored: it opens sources, looks at what they are,
// verifies what came, and runs such fetches in the background.
//
// Nothing here knows where an image goes: a Sink does, which each hypervisor's package brings along. An image is published only after
// its last byte arrived and its digest was found right.
package image
