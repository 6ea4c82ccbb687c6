// SPDX-License-Identifier: Apache-2.0

// Package proxy is the Proxy controller: Reconcile in controller.go is its table of contents, and every step has a file of its own.
//
// What a step decides it decides by pure functions of what is wanted, what was observed, and the time; what it learns it writes into the
// pass, and the pass is written to the API once, at its end. Only the placement is written at once, before anything changes on a host.
package proxy
