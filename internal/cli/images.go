// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/egress-proxies/egress-proxies-operator/internal/image"
)

// defaultImageSpool is a folder on a disk on most machines, where /tmp may be memory.
const defaultImageSpool = "/var/tmp"

// depot is what the fetches of all entries share. A default folder that cannot be used is done without; one that was asked for is not.
func (o Operator) depot() (*image.Depot, error) {
	options := image.DepotOptions{SpoolDir: o.ImageSpool, SpoolBytes: o.File.SpoolGiB() << 30, Observer: observedImages()}
	if options.SpoolDir == "" {
		options.SpoolDir = defaultImageSpool
	}
	depot, err := image.NewDepot(options)
	if err == nil || o.ImageSpool != "" {
		return depot, err
	}
	o.Log.Warn("no image spool: each host downloads its images by itself, and packed images are refused; give a folder with --image-spool", "error", err)
	options.SpoolDir = ""
	return image.NewDepot(options)
}

// imageMetrics are an image.Observer.
type imageMetrics struct {
	fetches  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	stored   *prometheus.CounterVec
	received prometheus.Counter
	spooled  prometheus.Gauge
}

// observedImages are the process's own: it may run the operator more than once.
var observedImages = sync.OnceValue(func() image.Observer {
	m := &imageMetrics{
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_image_fetches_total", Help: "Fetches of images and agents that ended, by host and result (ok, or the kind of error).",
		}, []string{"host", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "egress_image_fetch_duration_seconds", Help: "How long fetches took, by result.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}, []string{"result"}),
		stored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_image_stored_bytes_total", Help: "Bytes of images and agents that hosts took, by host.",
		}, []string{"host"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "egress_image_received_bytes_total", Help: "Bytes of images that came over the network from mirrors.",
		}),
		spooled: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "egress_image_spool_bytes", Help: "Bytes that the image spool holds or has promised.",
		}),
	}
	metrics.Registry.MustRegister(m.fetches, m.seconds, m.stored, m.received, m.spooled)
	return m
})

// JobEnded counts a fetch.
func (m *imageMetrics) JobEnded(host string, took time.Duration, bytes int64, err error) {
	result := "ok"
	if err != nil {
		result = fmt.Sprint(image.KindOf(err))
	}
	m.fetches.WithLabelValues(host, result).Inc()
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
	m.stored.WithLabelValues(host).Add(float64(bytes))
}

// Received counts what came from mirrors.
func (m *imageMetrics) Received(bytes int) { m.received.Add(float64(bytes)) }

// Spooled says how full the spool is.
func (m *imageMetrics) Spooled(bytes int64) { m.spooled.Set(float64(bytes)) }
