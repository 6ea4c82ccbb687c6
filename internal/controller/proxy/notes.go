// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// notes is what the controller remembers of Proxies. All of it may be lost at any time: it spares work, and decides nothing that is not
// checked again.
type notes struct {
	mu  sync.Mutex
	all map[types.UID]*note
	// recalled: every Proxy that there was at the start has a note.
	recalled atomic.Bool
}

type note struct {
	name types.NamespacedName
	// entry and host that hold the instance, or will.
	entry, host string
	// addresses of the entry's pools that it has, or will.
	addresses []netip.Addr
	// needs of the instance, and since when it runs as far as known; zero before that.
	needs   needs
	settled time.Time
	// failures in a row, for the backoff.
	failures int
	// guestFailures in a row to hand credentials to the guest: its instance runs, so that failures are none.
	guestFailures int
	// full hosts answered Capacity, and when.
	full map[string]time.Time
	// progressAt is when progress was last shown.
	progressAt time.Time
	// written is the resource version of the last write; the cache may not have it yet.
	written string
	// guestHas are the credentials that the running guest is known to take; zero while that is not known.
	guestHas provider.Credentials
}

// needs are what an instance takes of its host, and of its namespace's quota.
type needs struct {
	vcpus     int
	memoryMiB int64
}

// placed takes over where the Proxy's status says that it is.
func (n *note) placed(proxy *v1alpha1.Proxy, file *config.File) {
	n.needs, n.settled = needsOf(proxy, file), settledAt(proxy)
	n.name, n.entry, n.host = types.NamespacedName{Namespace: proxy.Namespace, Name: proxy.Name}, proxy.Spec.Provider, proxy.Status.Host
	n.addresses = parsedAddresses(proxy.Status.AssignedAddresses)
}

// of lets f read and change the note of a Proxy.
func (n *notes) of(uid types.UID, f func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[types.UID]*note{}
	}
	known, ok := n.all[uid]
	if !ok {
		known = &note{}
		n.all[uid] = known
	}
	f(known)
}

// drop forgets all Proxies that had that name.
func (n *notes) drop(name types.NamespacedName) []types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var dropped []types.UID
	for uid, known := range n.all {
		if known.name == name {
			dropped = append(dropped, uid)
			delete(n.all, uid)
		}
	}
	return dropped
}

// names of the Proxies of an entry; of the one with that UID where it is not empty.
func (n *notes) names(entry string, uid types.UID) []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	if uid != "" {
		if known, ok := n.all[uid]; ok {
			return []types.NamespacedName{known.name}
		}
		return nil
	}
	var names []types.NamespacedName
	for _, known := range n.all {
		if known.entry == entry {
			names = append(names, known.name)
		}
	}
	return names
}

// holders are who has which address of a pool, by UID. The caller holds the lock.
func (n *notes) holders() map[netip.Addr]string {
	held := map[netip.Addr]string{}
	for uid, known := range n.all {
		for _, a := range known.addresses {
			held[a] = string(uid)
		}
	}
	return held
}

// loads are what the Proxies of an entry have of each host, but for one Proxy. seen says of a host when its figures are from: what settled before is
// in them. The caller holds the lock.
func (n *notes) loads(entry string, but types.UID, seen map[string]time.Time) map[string]load {
	loads := map[string]load{}
	for uid, known := range n.all {
		if known.entry != entry || known.host == "" || uid == but {
			continue
		}
		l := loads[known.host]
		l.instances++
		l.vcpus += known.needs.vcpus
		if known.settled.IsZero() || known.settled.After(seen[known.host]) {
			l.starting++
			l.startingMemoryMiB += known.needs.memoryMiB
		}
		loads[known.host] = l
	}
	return loads
}

// usage is what the placed Proxies of a namespace have of an entry, but for one. The caller holds the lock.
func (n *notes) usage(entry, namespace string, but types.UID) (u usage) {
	for uid, known := range n.all {
		if known.entry == entry && known.name.Namespace == namespace && known.host != "" && uid != but {
			u.instances++
			u.vcpus += known.needs.vcpus
			u.memoryMiB += known.needs.memoryMiB
		}
	}
	return u
}
