// SPDX-License-Identifier: Apache-2.0

// Package simulated makes instances that are listeners on loopback addresses of this machine: real proxies with chosen boot times,
// capacity and faults, for demos, lessons, tests and benchmarks.
//
// A World holds the hosts and their instances. What becomes of an instance is a pure function of its faults and its age (lifeAt); the
// World carries it out on a clock. A Provider serves one entry through the API of a World: one in the operator's own process, or one
// in a process of its own behind a unix socket (Serve, Client), whose instances outlive the operator.
//
// Credentials and control keys are kept in memory only, and cross the socket and nothing else.
package simulated
