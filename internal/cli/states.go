// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/registry"
)

// states are figures that are read when somebody asks for them: how Proxies and hosts are. Their number grows with entries, hosts and reasons,
// never with Proxies.
type states struct {
	proxies, hostReady, hostInstances, poolAvailable *prometheus.Desc
	// source is whom they are read from: the operator that runs.
	source atomic.Pointer[stateSource]
}

type stateSource struct {
	// proxies reads from the cache.
	proxies   client.Reader
	providers *registry.Registry
}

// observedStates is the process's own: it may run the operator more than once.
var observedStates = sync.OnceValue(func() *states {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	s := &states{
		proxies:       desc("egress_proxies", "Proxies, by entry (external where they have none), and status and reason of Ready.", "entry", "ready", "reason"),
		hostReady:     desc("egress_host_ready", "1 while the host takes new instances, by the reason of its ProviderHealth.", "entry", "host", "reason"),
		hostInstances: desc("egress_host_instances", "Instances of the entry on the host, as last known.", "entry", "host"),
		poolAvailable: desc("egress_host_pool_available_bytes", "Room in the host's pool beyond the reserve, as last seen.", "entry", "host"),
	}
	metrics.Registry.MustRegister(s)
	return s
})

// Describe lists the figures.
func (s *states) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.proxies, s.hostReady, s.hostInstances, s.poolAvailable} {
		descs <- d
	}
}

// Collect reads them.
func (s *states) Collect(figures chan<- prometheus.Metric) {
	source := s.source.Load()
	if source == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		figures <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	var list v1alpha1.ProxyList
	if err := source.proxies.List(context.Background(), &list); err == nil {
		for labels, n := range countProxies(list.Items) {
			gauge(s.proxies, float64(n), labels[:]...)
		}
	}
	set, ok := source.providers.Now()
	if !ok {
		return
	}
	for entry, p := range set.Providers {
		for _, h := range p.Hosts() {
			ready := 0.0
			if h.Ready {
				ready = 1
			}
			gauge(s.hostReady, ready, entry, h.Name, h.Reason)
			gauge(s.hostInstances, float64(h.Instances), entry, h.Name)
			if !h.PoolSeen.IsZero() {
				gauge(s.poolAvailable, float64(h.PoolAvailableGiB)*(1<<30), entry, h.Name)
			}
		}
	}
}

// countProxies counts by entry, and status and reason of Ready.
func countProxies(proxies []v1alpha1.Proxy) map[[3]string]int {
	counts := map[[3]string]int{}
	for _, p := range proxies {
		ready, reason := string(metav1.ConditionUnknown), v1alpha1.ReasonPending
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			ready, reason = string(c.Status), c.Reason
		}
		counts[[3]string{cmp.Or(p.Spec.Provider, "external"), ready, reason}]++
	}
	return counts
}
