// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// callMetrics count what hosts are asked.
type callMetrics struct{ calls *prometheus.CounterVec }

// observedCalls are the process's own: it may run the operator more than once.
var observedCalls = sync.OnceValue(func() callMetrics {
	m := callMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "egress_libvirt_calls_total",
		Help: "Calls to libvirt, by host and procedure. What a steady host is asked does not grow with the number of its instances.",
	}, []string{"entry", "host", "procedure"})}
	metrics.Registry.MustRegister(m.calls)
	return m
})

// count counts the calls to the hosts of an entry.
func (m callMetrics) count(entry string) func(host, procedure string) {
	return func(host, procedure string) { m.calls.WithLabelValues(entry, host, procedure).Inc() }
}
