// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/providerhealth"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// health keeps the ProviderHealths of the entries.
func (o Operator) health(mgr manager.Manager, providers func() *registry) *providerhealth.Reconciler {
	return &providerhealth.Reconciler{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(operatorName), Now: time.Now, Poll: providerhealth.DefaultPoll,
		Entries: func() map[string]providerhealth.Entry {
			set := providers().Current()
			entries := make(map[string]providerhealth.Entry, len(set.File.Entries))
			for _, e := range set.File.Entries {
				entries[e.Name] = providerhealth.Entry{Type: e.Type, PrePull: e.PrePull, Provider: set.Providers[e.Name]}
			}
			return entries
		},
	}
}

// collector removes what hosts hold and nothing needs.
func (o Operator) collector(mgr manager.Manager, providers *registry) *collector.Collector {
	return &collector.Collector{
		Providers: func() map[string]provider.Provider { return providers.Current().Providers },
		Mode:      cmp.Or(o.Collector, collector.On), Grace: cmp.Or(o.CollectorGrace, collector.DefaultGrace), Now: time.Now, Log: o.Log,
		Report: collector.EventReporter{
			Client: mgr.GetClient(), Events: mgr.GetEventRecorder(operatorName), Observer: observedCollector(), Log: o.Log,
		},
	}
}

// collectorMetrics are a collector.Observer.
type collectorMetrics struct{ collected, kept, failed *prometheus.CounterVec }

// observedCollector is the process's own: it may run the operator more than once.
var observedCollector = sync.OnceValue(func() collector.Observer {
	m := collectorMetrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_collector_collected_total", Help: "Volumes and markers that the collector removed, or would have removed in a dry run.",
		}, []string{"entry", "host", "kind", "dry_run"}),
		kept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_collector_left_alone_total", Help: "Reports of volumes with a name of ours that cannot be understood.",
		}, []string{"entry", "host", "kind"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_collector_failures_total", Help: "Sweeps of a host that failed.",
		}, []string{"entry", "host"}),
	}
	metrics.Registry.MustRegister(m.collected, m.kept, m.failed)
	return m
})

// Collected counts a removal.
func (m collectorMetrics) Collected(entry, host, kind string, dryRun bool) {
	m.collected.WithLabelValues(entry, host, kind, strconv.FormatBool(dryRun)).Inc()
}

// Kept counts a report.
func (m collectorMetrics) Kept(entry, host, kind string) {
	m.kept.WithLabelValues(entry, host, kind).Inc()
}

// Failed counts a sweep that failed.
func (m collectorMetrics) Failed(entry, host string) { m.failed.WithLabelValues(entry, host).Inc() }
