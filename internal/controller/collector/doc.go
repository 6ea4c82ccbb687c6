// SPDX-License-Identifier: Apache-2.0

// Package collector removes what hosts hold and nothing needs: unfinished uploads, and bases and agents that no Create would use again. It
// decides when: not before something has looked like a leftover for a whole grace period, unchanged. Providers decide what: they look at everything
// again at the moment of the removal, and keep whatever anything on the host refers to.
package collector
