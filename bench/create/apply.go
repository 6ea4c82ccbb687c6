// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

const (
	startedWithin = time.Minute
	deletedWithin = time.Minute
)

// applyAll applies Proxies to a real API, one after the other, and returns how long after that the domain of each was started by the operator.
func applyAll(ctx context.Context, dir string, n int) (took []time.Duration, err error) {
	kit.Say("starting the Kubernetes API and the operator")
	dir = filepath.Join(dir, "lab")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, dir, hostNumber)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	host := l.Hosts[0]
	if err := l.WriteProviders(l.ProvidersHead(image, map[string]string{image: l.Images.Empty}) + lab.HostYAML(host, host.SSHAddress)); err != nil {
		return nil, err
	}
	if err := l.StartOperator(); err != nil {
		return nil, err
	}
	entry := lab.EntryOf(host, lab.Entry, image, config.Image{URL: "file://" + l.Images.Empty})
	w := &watch{backend: kvm2.Backends(entry.Credentials)(entry.Hosts[0]), told: make(chan string, 1000)}
	defer w.backend.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { w.ended = w.backend.Events(ctx, func(domain string) { w.told <- domain }); close(w.told) }()
	for i := range n + 1 {
		d, err := w.apply(ctx, l, fmt.Sprintf("exit-%d", i))
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first one waited for its base
			took = append(took, d)
		}
	}
	kit.Say("%d Proxies, apply to started: median %s, p99 %s", n, milliseconds(kit.Median(took)), milliseconds(kit.P99(took)))
	return took, nil
}

// watch sees by libvirt's events, apart from the operator, when domains are started.
type watch struct {
	backend libvirt.Backend
	told    chan string
	ended   error // when told is closed
}

// apply makes a Proxy, waits until its domain is started, and deletes it.
func (w *watch) apply(ctx context.Context, l *lab.Lab, name string) (time.Duration, error) {
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.ProxySpec{Provider: lab.Entry}}
	start := time.Now()
	if err := l.Client.Create(ctx, p); err != nil {
		return 0, err
	}
	at, err := w.started(ctx, provider.CompactUID(string(p.UID)))
	if err != nil {
		return 0, fmt.Errorf("proxy %s: %w", name, err)
	}
	if err := l.Client.Delete(ctx, p); err != nil {
		return 0, err
	}
	return at.Sub(start), lab.Until(ctx, deletedWithin, "Proxy "+name+" to be gone", func(ctx context.Context) (bool, error) {
		err := l.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// started waits for the domain with a UID in its name, and says when it was seen to run.
func (w *watch) started(ctx context.Context, uid string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, startedWithin)
	defer cancel()
	for {
		select {
		case domain, ok := <-w.told:
			if !ok {
				return time.Time{}, w.ended
			}
			if !strings.HasSuffix(domain, uid) {
				continue
			}
			if info, err := w.backend.Domain(ctx, domain); err != nil || golibvirt.DomainState(info.State) == golibvirt.DomainRunning {
				return time.Now(), err
			}
		case <-ctx.Done():
			return time.Time{}, errors.New("its domain was not started in time")
		}
	}
}
