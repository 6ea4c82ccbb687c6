// SPDX-License-Identifier: Apache-2.0

//go:build live

// Package upload shows on a real host that an image arrives as it is, its holes included.
package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uploadHost is a host of these tests' own.
const uploadHost = 48

// Deadlines, from the steps that they bound: an upload of some MiB to a busy machine, and some calls.
const (
	pulledWithin = 2 * time.Minute
	sweepTime    = time.Minute
)

// operator is one cluster's provider over the host, with one image to pull.
type operator struct {
	*libvirt.Provider
	t       *testing.T
	host    *kvmhost.Host
	cluster string
	hand    libvirt.Backend // past the provider
}

func operate(t *testing.T, h *kvmhost.Host, path string) *operator {
	t.Helper()
	entry := lab.EntryOf(h, "kvm2-upload", "image", config.Image{URL: "file://" + path})
	entry.PrePull = []string{entry.DefaultImage}
	o := &operator{t: t, host: h, cluster: libvirttest.FreshCluster(), hand: kvm2.Backends(entry.Credentials)(entry.Hosts[0])}
	t.Cleanup(o.hand.Close)
	t.Cleanup(o.wipe)
	var err error
	o.Provider, err = libvirt.New(libvirt.Options{Cluster: o.cluster, Entry: entry, Backend: kvm2.Backends(entry.Credentials)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// own are the cluster's volumes.
func (o *operator) own(ctx context.Context) []string {
	o.t.Helper()
	all, err := o.hand.Volumes(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	var own []string
	for _, v := range all {
		if strings.HasPrefix(v, libvirt.Prefix+"-"+o.cluster+"-") {
			own = append(own, v)
		}
	}
	return own
}

func (o *operator) wipe() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.t.Context()), sweepTime)
	defer cancel()
	for _, v := range o.own(ctx) {
		if err := o.hand.DeleteVolume(ctx, v); err != nil {
			o.t.Errorf("%s is left: %v", v, err)
		}
	}
}

// pull has the image published, and returns its base, and what the marker says of it.
func (o *operator) pull() (base libvirt.VolumeInfo, content libvirt.Content) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), pulledWithin)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := o.PrePull(ctx, lab.EntryHost)
		if err == nil {
			break
		}
		if provider.KindOf(err) != provider.InProgress || ctx.Err() != nil {
			o.t.Fatal(err)
		}
		<-tick.C
	}
	for _, v := range o.own(ctx) {
		volume, c, err := libvirt.ParseMarker(v)
		if err != nil {
			continue // the base itself, or one that is not in use any more
		}
		if base, err = o.hand.Volume(ctx, volume); err != nil {
			o.t.Fatal(err)
		}
		return base, c
	}
	o.t.Fatal("nothing is published")
	return base, content
}

// sum of a volume's bytes, on the host.
func (o *operator) sum(v libvirt.VolumeInfo) string {
	o.t.Helper()
	out, err := o.host.Exec(o.t.Context(), "sha256sum", v.Path)
	if err != nil {
		o.t.Fatal(err)
	}
	digest, _, _ := strings.Cut(out, " ")
	return digest
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
