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
	"github.com/egress-proxies/egress-proxies-operator/internal/registry"
)

// health keeps the ProviderHealths of the entries.
func (o Operator) health(mgr manager.Manager, providers func() *registry.Registry) *providerhealth.Reconciler {
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

// collector removes what hosts hold and nothing needs. wake has a Proxy looked at.
func (o Operator) collector(mgr manager.Manager, providers *registry.Registry, wake func(entry, uid string)) *collector.Collector {
	return &collector.Collector{
		Providers: func() map[string]provider.Provider { return providers.Current().Providers },
		Proxies:   collector.ReadProxies(mgr.GetAPIReader()),
		Ledger:    collector.HealthLedger{Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Now: time.Now},
		Mode:      cmp.Or(o.Collector, collector.On), Grace: cmp.Or(o.CollectorGrace, collector.DefaultGrace), Wake: wake, Now: time.Now, Log: o.Log,
		Report: collector.EventReporter{
			Client: mgr.GetClient(), Events: mgr.GetEventRecorder(operatorName), Observer: observedCollector(), Log: o.Log,
		},
	}
}

// collectorMetrics are a collector.Observer.
type collectorMetrics struct {
	collected, kept, failed, vanished *prometheus.CounterVec
	foreign, stopped                  *prometheus.GaugeVec
}

// observedCollector is the process's own: it may run the operator more than once.
var observedCollector = sync.OnceValue(func() collector.Observer {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"entry"})
	}
	m := collectorMetrics{
		collected: counter("egress_collector_collected_total",
			"Instances, volumes and markers that the collector removed, or would have removed in a dry run.", "entry", "host", "kind", "dry_run"),
		kept:     counter("egress_collector_left_alone_total", "Reports of what nothing needs and is left alone.", "entry", "host", "kind"),
		failed:   counter("egress_collector_failures_total", "Sweeps of a host, or of an entry (no host), that failed.", "entry", "host"),
		vanished: counter("egress_collector_vanished_total", "Instances that their host does not have any more.", "entry", "host"),
		foreign:  gauge("egress_collector_foreign", "What on the entry's hosts bears a name as ours are, and is not ours."),
		stopped:  gauge("egress_collector_stopped", "1 while nothing of the entry is removed until somebody approves."),
	}
	metrics.Registry.MustRegister(m.collected, m.kept, m.failed, m.vanished, m.foreign, m.stopped)
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

// Vanished counts an instance that vanished.
func (m collectorMetrics) Vanished(entry, host string) {
	m.vanished.WithLabelValues(entry, host).Inc()
}

// Seen shows how an entry is.
func (m collectorMetrics) Seen(entry string, foreign int, stopped bool) {
	m.foreign.WithLabelValues(entry).Set(float64(foreign))
	value := 0.0
	if stopped {
		value = 1
	}
	m.stopped.WithLabelValues(entry).Set(value)
}
