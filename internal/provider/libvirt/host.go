// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"net/netip"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// host is one hypervisor with what is remembered of it. Nothing remembered decides about an instance: it is for messages, placement
// and addresses only.
type host struct {
	name    string
	cfg     config.Host
	backend Backend
	room    reservations

	mu        sync.Mutex
	state     provider.HostState
	addresses map[string][]netip.Addr // by UID
	marks     map[string]noted        // what marks said, by domain
	making    map[string]bool         // UIDs of Creates in flight
	offers    map[string]cachedOffer  // by architecture
	writing   map[string]bool         // volumes of publications in flight
	used      map[string]time.Time    // when a source was last looked for, by its stem
}

// noted is what is kept of a mark of this cluster's. A mark is read once a start of the operator, and again before anything is changed.
type noted struct {
	entry string
	// proxy is the Proxy's namespace/name, for messages.
	proxy    string
	retained bool
}

type cachedOffer struct {
	offer offer
	until time.Time
}

func newHost(cfg config.Host, backend Backend) *host {
	return &host{
		name: cfg.Name, cfg: cfg, backend: backend,
		addresses: map[string][]netip.Addr{}, marks: map[string]noted{}, making: map[string]bool{}, offers: map[string]cachedOffer{},
		writing: map[string]bool{}, used: map[string]time.Time{},
		state: provider.HostState{
			Name: cfg.Name, Reason: provider.HostUnknown, Message: "not looked at yet", Unschedulable: !cfg.IsSchedulable(),
		},
	}
}

func (h *host) remember(uid string, addresses []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addresses[uid] = slices.Clone(addresses)
}

func (h *host) lastKnown(uid string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.addresses[uid])
}

func (h *host) forget(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.addresses, uid)
}

// learn notes a mark of this cluster's.
func (h *host) learn(domain string, m Mark) noted {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marks[domain] = noted{m.Entry, bounded(path.Join(m.Namespace, m.Name)), m.Retained}
	return h.marks[domain]
}

// begin counts an instance as being made until end.
func (h *host) begin(uid string) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.making[uid] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.making, uid)
	}
}

func (h *host) snapshot() provider.HostState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// update replaces the state, and says whether readiness changed, or the reason.
func (h *host) update(s provider.HostState) (ready, reason bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready, reason = h.state.Ready != s.Ready, h.state.Reason != s.Reason
	h.state = s
	return ready, reason
}
