// SPDX-License-Identifier: Apache-2.0

// Package collector removes what hosts hold and nothing needs: instances that no Proxy owns, volumes that crashes left, and bases and agents that no
// Create would use again. It decides when: not before something has looked like a leftover for a whole grace period, unchanged, and not while more is
// to go than a day allows, until somebody approves. Providers decide what: they look at everything again at the moment of the removal, and keep
// whatever anything on the host refers to. It also tells Proxies whose instance has vanished.
package collector
