// SPDX-License-Identifier: Apache-2.0

// Package link holds one SSH connection with one libvirt RPC connection on it,
// to one host.
//
// A link never blocks when it is killed: its TCP connection is closed first, and
// every caller is freed by the channel that Done returns. Under the libvirt client
// library lies a guard that reads and checks every frame itself, so that the
// library only ever sees well-formed answers to calls that it has made, each of
// them once.
//
// A dead link is a *DeadError, which carries no error of the daemon's: nobody can
// take it for "there is no such thing on the host".
package link
