// SPDX-License-Identifier: Apache-2.0

// Package agent is a proxy on one port: HTTP CONNECT, plain HTTP and SOCKS5 for clients with credentials, and the control channel of
// package agentapi over which the operator changes them. It serves in a guest (cmd/egress-agent) and, over a Dial of their own, for
// providers whose instances live in the operator's process.
package agent
