// SPDX-License-Identifier: Apache-2.0

package providerhealth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	// heldFor is how long a host that held its images is believed to do so.
	heldFor = 5 * time.Minute
	// pullTime bounds one look at all hosts' images; nobody waits for a transfer.
	pullTime = 15 * time.Second
	// pullFanOut is how many hosts are asked at once.
	pullFanOut = 8
)

// imagesHeld is how far the hosts of an entry are with the images that they shall hold; nil where they shall hold none.
type imagesHeld []hostImages

type hostImages struct {
	host string
	// waits: the host is not ready, so it was not asked.
	waits bool
	// err says that an image is on its way (InProgress), or why it cannot be brought; nil where all are held.
	err error
}

// pulls is what is remembered of the hosts' images. It may be lost at any time: then they are asked again.
type pulls struct {
	mu   sync.Mutex
	held map[string]time.Time // when a host last held its images, by entry and host
}

// pull has every host of the entry that is ready hold its images. It starts what is missing, and waits for none of it.
func (r *Reconciler) pull(ctx context.Context, name string, entry Entry, states []provider.HostState) imagesHeld {
	puller, ok := entry.Provider.(provider.Puller)
	if !ok || len(entry.PrePull) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	all := make(imagesHeld, len(states))
	group := errgroup.Group{}
	group.SetLimit(pullFanOut)
	for i, s := range states {
		all[i].host = s.Name
		if s.Unschedulable || r.pulls.heldLately(name, s.Name, r.Now()) {
			continue
		}
		if !s.Ready {
			all[i].waits = true
			continue
		}
		group.Go(func() error {
			all[i].err = puller.PrePull(ctx, s.Name)
			r.pulls.note(name, s.Name, all[i].err == nil, r.Now())
			return nil
		})
	}
	_ = group.Wait() // each host's error is in its place
	return all
}

// condition is ImagesHeld; its reason is empty where there is none.
func (all imagesHeld) condition() (status metav1.ConditionStatus, reason, message string) {
	if all == nil {
		return "", "", ""
	}
	var moving, waiting []string
	for _, h := range all {
		switch {
		case h.waits:
			waiting = append(waiting, h.host)
		case provider.IsInProgress(h.err):
			moving = append(moving, h.host)
		case h.err != nil:
			return metav1.ConditionFalse, v1alpha1.ReasonPullFailed, h.err.Error()
		}
	}
	switch {
	case len(moving) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonPulling, "images are on their way to " + some(moving)
	case len(waiting) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonPulling, "waits until these hosts are ready: " + some(waiting)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonHeld, fmt.Sprintf("the images that the entry names under prePull are on each of %d hosts that can run them", len(all))
}

func (p *pulls) heldLately(entry, host string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.held[entry+"/"+host]
	return ok && now.Sub(at) < heldFor
}

func (p *pulls) note(entry, host string, held bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[string]time.Time{}
	}
	if held {
		p.held[entry+"/"+host] = now
		return
	}
	delete(p.held, entry+"/"+host)
}
