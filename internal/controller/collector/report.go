// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

const (
	// actionCollect is what the events say that was done, followed by what it was done to where that is one thing: events of one action and reason are
	// taken for one, whatever their notes say.
	actionCollect = "Collect"
	// maxAction is what an event's action can have.
	maxAction = 128
	// maxNote is what an event's note can have.
	maxNote = 1000
)

// Observer counts what the collector does.
type Observer interface {
	Collected(entry, host, kind string, dryRun bool)
	Kept(entry, host, kind string)
	Failed(entry, host string)
	Seen(entry string, foreign int, stopped bool)
	Vanished(entry, host string)
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
	r.event(entry, l.Object, corev1.EventTypeNormal, reason, fmt.Sprintf("host %s: %s %s: %s: %s", host, l.Kind, done, l.Object, l.Why))
}

// Kept says what is left alone.
func (r EventReporter) Kept(entry, host string, l provider.Leftover, why string) {
	r.Observer.Kept(entry, host, string(l.Kind))
	next := "remove it if nobody needs it (virsh vol-delete)"
	if l.Kind == provider.LeftoverInstance || l.Kind == provider.LeftoverNewer {
		next = "remove it if nobody needs it (virsh undefine)"
	}
	r.Log.Warn("collector: left alone", "entry", entry, "host", host, "object", l.Object, "kind", l.Kind, "why", why)
	r.event(entry, l.Object, corev1.EventTypeWarning, v1alpha1.ReasonLeftAlone, fmt.Sprintf("host %s: %s %s: %s; it is left alone: %s", host, l.Kind, l.Object, why, next))
}

// Seen counts; the ProviderHealth has the rest.
func (r EventReporter) Seen(entry string, foreign int, stopped bool) {
	r.Observer.Seen(entry, foreign, stopped)
}

// Stopped says that somebody has to look, and how to approve.
func (r EventReporter) Stopped(entry string, stop v1alpha1.CollectorStop) {
	note := explain(entry, stop)
	r.Log.Error("collector stopped", "entry", entry, "reason", stop.Reason, "message", note)
	r.event(entry, "", corev1.EventTypeWarning, stop.Reason, note)
}

// Resumed says that the collector goes on.
func (r EventReporter) Resumed(entry, why string) {
	r.Log.Info("collector resumed", "entry", entry, "why", why)
	r.event(entry, "", corev1.EventTypeNormal, v1alpha1.ReasonCollectorResumed, why)
}

// Vanished is told at the Proxy.
func (r EventReporter) Vanished(entry, host string, p Proxy) {
	r.Observer.Vanished(entry, host)
	r.Log.Warn("collector: an instance has vanished", "entry", entry, "host", host, "namespace", p.Namespace, "proxy", p.Name)
	proxy := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
	r.Events.Eventf(proxy, nil, corev1.EventTypeWarning, v1alpha1.ReasonInstanceVanished, actionCollect, "host %s does not have the instance any more", host)
}

// Failed says which host could not be swept.
func (r EventReporter) Failed(entry, host string, err error) {
	r.Observer.Failed(entry, host)
	r.Log.Warn("collector", "entry", entry, "host", host, "error", err)
	r.event(entry, host, corev1.EventTypeWarning, v1alpha1.ReasonCollectFailed, err.Error())
}

// event is written where the entry has a ProviderHealth; that it has none is no reason not to collect.
func (r EventReporter) event(entry, about, kind, reason, note string) {
	var health v1alpha1.ProviderHealth
	if err := r.Client.Get(context.Background(), client.ObjectKey{Name: entry}, &health); err != nil {
		r.Log.Warn("collector: no event", "entry", entry, "note", note, "error", err)
		return
	}
	action := strings.TrimSpace(actionCollect + " " + about)
	r.Events.Eventf(&health, nil, kind, reason, text.Shorten(action, maxAction), "%s", text.Shorten(note, maxNote))
}
