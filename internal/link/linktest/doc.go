// SPDX-License-Identifier: Apache-2.0

// Package linktest has what tests of links need: an SSH server in this process, a
// libvirt peer that does as its script says, and a TCP relay that can freeze. All of
// it listens on loopback, and ends with its test.
package linktest
