// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/registry"
	"github.com/egress-proxies/egress-proxies-operator/internal/text"
)

// files is how providers come from the providers file.
type files struct {
	registry.Options
	// wait returns when nobody watches the file any more.
	wait func()
}

// files follows the providers file until ctx ends.
func (o Operator) files(ctx context.Context, mgr manager.Manager, env environment) files {
	f := files{wait: func() {}, Options: registry.Options{
		File: o.File, Log: o.Log,
		Prepare: func(file *config.File) { env.places.Reorder(file.Entries) },
		Make: func(file *config.File, entry config.Entry) (provider.Provider, error) {
			env.file = file
			return makeProvider(env, entry)
		},
		Report: fileReporter{mgr.GetClient(), mgr.GetEventRecorder(operatorName), observedFiles(), o.Log},
	}}
	if o.Path != "" {
		f.Load = func() (*config.File, error) { return LoadProviders(o.Path) }
		f.Changed, f.wait = registry.Watch(ctx, o.Path, o.Log)
	}
	return f
}

// actionReload is what the events say that was done.
const actionReload = "Reload"

// maxNote is what an event's note can have.
const maxNote = 1000

// fileReporter tells of providers files in the log, in figures, and at the ProviderHealths.
type fileReporter struct {
	objects client.Reader
	events  events.EventRecorder
	figures fileMetrics
	log     *slog.Logger
}

// InForce says what changed.
func (r fileReporter) InForce(file *config.File, entries []string) {
	r.figures.refused.Set(0)
	r.figures.reloads.WithLabelValues("in_force").Inc()
	r.log.Info("the providers file changed, and is in force", "changed", entries)
	changed := "no entry is taken up anew"
	if len(entries) > 0 {
		changed = "taken up anew, or gone: " + strings.Join(entries, ", ")
	}
	r.event(file.EntryNames(), corev1.EventTypeNormal, v1alpha1.ReasonFileInForce, "a changed providers file is in force; "+changed)
}

// Refused says what is wrong, and what holds.
func (r fileReporter) Refused(file *config.File, err error) {
	r.figures.refused.Set(1)
	r.figures.reloads.WithLabelValues("refused").Inc()
	r.log.Error("the providers file changed, and cannot be used; the one before stays in force", "error", err)
	r.event(file.EntryNames(), corev1.EventTypeWarning, v1alpha1.ReasonFileRefused, fmt.Sprintf("the one before stays in force: %v", err))
}

// event is written at the ProviderHealth of each entry that has one.
func (r fileReporter) event(entries []string, kind, reason, note string) {
	note = text.Shorten(text.Line(note), maxNote)
	for _, entry := range entries {
		var health v1alpha1.ProviderHealth
		if err := r.objects.Get(context.Background(), client.ObjectKey{Name: entry}, &health); err == nil { // from the cache
			r.events.Eventf(&health, nil, kind, reason, actionReload, "%s", note)
		}
	}
}

// fileMetrics are of the providers file.
type fileMetrics struct {
	reloads *prometheus.CounterVec
	refused prometheus.Gauge
}

// observedFiles is the process's own: it may run the operator more than once.
var observedFiles = sync.OnceValue(func() fileMetrics {
	m := fileMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_providers_file_changes_total", Help: "Providers files that came into force after the first, and that were refused.",
		}, []string{"result"}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "egress_providers_file_refused", Help: "1 while the providers file that is there cannot be used, and an earlier one is in force.",
		}),
	}
	metrics.Registry.MustRegister(m.reloads, m.refused)
	return m
})
