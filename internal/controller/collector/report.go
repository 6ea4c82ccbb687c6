// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	// actionCollect is what the events say that was done.
	actionCollect = "Collect"
	// maxNote is what an event's note can have.
	maxNote = 1000
)

// Observer counts what the collector does.
type Observer interface {
	Collected(entry, host, kind string, dryRun bool)
	Kept(entry, host, kind string)
	Failed(entry, host string)
}

// EventReporter is a Reporter that writes events at the ProviderHealth of the entry, log lines, and counts.
type EventReporter struct {
	// Client reads from the cache.
	Client   client.Reader
	Events   events.EventRecorder
	Observer Observer
	Log      *slog.Logger
}

// Collected says what was removed.
func (r EventReporter) Collected(entry, host string, l provider.Leftover, dryRun bool) {
	reason, done := v1alpha1.ReasonCollected, "removed"
	if dryRun {
		reason, done = v1alpha1.ReasonWouldCollect, "would be removed"
	}
	r.Observer.Collected(entry, host, string(l.Kind), dryRun)
	r.Log.Info("collector", "entry", entry, "host", host, "object", l.Object, "kind", l.Kind, "why", l.Why, "dryRun", dryRun)
	r.event(entry, corev1.EventTypeNormal, reason, fmt.Sprintf("host %s: %s %s: %s: %s", host, l.Kind, done, l.Object, l.Why))
}

// Kept says what is left alone.
func (r EventReporter) Kept(entry, host string, l provider.Leftover, why string) {
	r.Observer.Kept(entry, host, string(l.Kind))
	r.event(entry, corev1.EventTypeWarning, v1alpha1.ReasonLeftAlone,
		fmt.Sprintf("host %s: volume %s: %s; it is left alone: remove it if nobody needs it (virsh vol-delete)", host, l.Object, why))
}

// Failed says which host could not be swept.
func (r EventReporter) Failed(entry, host string, err error) {
	r.Observer.Failed(entry, host)
	r.Log.Warn("collector", "entry", entry, "host", host, "error", err)
	r.event(entry, corev1.EventTypeWarning, v1alpha1.ReasonCollectFailed, err.Error())
}

// event is written where the entry has a ProviderHealth; that it has none is no reason not to collect.
func (r EventReporter) event(entry, kind, reason, note string) {
	var health v1alpha1.ProviderHealth
	if err := r.Client.Get(context.Background(), client.ObjectKey{Name: entry}, &health); err != nil {
		r.Log.Warn("collector: no event", "entry", entry, "note", note, "error", err)
		return
	}
	if len(note) > maxNote {
		note = note[:maxNote]
	}
	r.Events.Eventf(&health, nil, kind, reason, actionCollect, "%s", note)
}
