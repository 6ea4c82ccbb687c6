// SPDX-License-Identifier: Apache-2.0

// Package local makes proxies of the machine that the operator runs on: each instance is a listener in the operator's process that sends
// from one exit, an address or an interface of this machine. docs/local.md is for its users.
//
// An exit is a host of the entry, and takes one instance. Traffic leaves by its exit or not at all: every dial binds its socket to the
// exit's address (and its interface, where the exit is one) first, and an exit that is not there fails the request.
//
// Instances live in this process and end with it: Create on the same exit makes the same one again.
package local
