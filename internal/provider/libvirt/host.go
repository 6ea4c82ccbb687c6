// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"net/netip"
	"path"
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
	turns   poolTurns
	census  *census
	memory  memory

	mu      sync.Mutex
	state   provider.HostState
	marks   map[string]noted       // what marks said, by domain
	making  map[string]bool        // UIDs of Creates in flight
	offers  map[string]cachedOffer // by architecture
	writing map[string]bool        // volumes of publications in flight
	used    map[string]time.Time   // when a source was last looked for, by its stem
}

// noted is what is kept of a mark of this cluster's. A mark is read once a start of the operator, and again before anything is changed.
type noted struct {
	entry string
	// proxy is the Proxy's namespace/name, for messages.
	proxy    string
	retained bool
	// uid of the Proxy, and its addresses of a pool.
	uid    string
	static []netip.Addr
}

type cachedOffer struct {
	offer offer
	until time.Time
}

func newHost(ctx context.Context, cfg config.Host, backend Backend) *host {
	return &host{
		name: cfg.Name, cfg: cfg, backend: backend, turns: newPoolTurns(), census: newCensus(ctx, backend.Domains, 2*pollEvery),
		marks: map[string]noted{}, making: map[string]bool{}, offers: map[string]cachedOffer{},
		writing: map[string]bool{}, used: map[string]time.Time{},
		state: provider.HostState{
			Name: cfg.Name, Reason: provider.HostUnknown, Message: "not looked at yet", Unschedulable: !cfg.IsSchedulable(), MaxVCPUs: cfg.MaxVCPUs,
		},
	}
}

func (h *host) lastKnown(uid string) []netip.Addr {
	known, _ := h.memory.known(uid)
	return known
}

// learn notes a mark of this cluster's.
func (h *host) learn(domain string, m Mark) noted {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marks[domain] = noted{m.Entry, bounded(path.Join(m.Namespace, m.Name)), m.Retained, m.UID, m.NIC.IPs()}
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
