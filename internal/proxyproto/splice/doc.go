// SPDX-License-Identifier: Apache-2.0

// Package splice copies the bytes of tunnels.
//
// Between two TCP connections on Linux the bytes go through a kernel pipe
// (splice(2)) and never enter this process. io.Copy does that too, but keeps
// one pipe a direction for as long as the tunnel lives, six descriptors in
// all. Here a pipe is taken from a pool only while there is something to move,
// so that an idle tunnel costs its two sockets. Any other connection, and any
// other system, gets a copy through pooled buffers.
package splice
