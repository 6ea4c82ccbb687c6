// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// markers of bases in the daemon's pool.
func (r *rig) markers() (all []string) {
	for _, v := range r.daemon.VolumeNames() {
		if strings.Contains(v, "-base-") && strings.Contains(v, ".img.v1.") {
			all = append(all, v)
		}
	}
	return all
}

func TestAPackedImage(t *testing.T) {
	content := qcow2(1 << 30)
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	file := packed(t, content)
	served := sha256.Sum256(file)
	spool := func(o *libvirt.Options) {
		depot, err := image.NewDepot(image.DepotOptions{SpoolDir: t.TempDir(), SpoolBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(depot.Close)
		o.Depot = depot
		debian := o.Entry.Images["debian"]
		debian.URL, debian.SHA256 = imageFile(t, file), hex.EncodeToString(served[:])
		o.Entry.Images["debian"] = debian
	}
	t.Run("H4a: the marker says that its digest is of what was unpacked", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{}, spool)
		r.mustMake(t)
		all := r.markers()
		if len(all) != 1 || !strings.Contains(all[0], ".img.v1.unpacked-sha256-"+digest+".size-65536.qcow2-1073741824") {
			t.Errorf("markers %q", all)
		}
		if base, _ := r.daemon.Content(strings.SplitAfter(all[0], ".img")[0]); !bytes.Equal(base, content) {
			t.Errorf("the base has %d bytes, not those that were packed", len(base))
		}
	})
	t.Run("without a spool it is refused with what to do", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{}, spool, func(o *libvirt.Options) { o.Depot = nil })
		_, err := r.settle(t.Context(), r.spec())
		want(t, err, provider.Permanent, "is packed with gzip", "image spool")
	})
}

func TestPrePull(t *testing.T) {
	r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
		o.Entry.PrePull = []string{"debian", "foreign"}
		o.Entry.Images["foreign"] = config.Image{URL: "file:///nonexistent", Arch: "aarch64"}
	})
	err := r.PrePull(t.Context(), hostName)
	want(t, err, provider.InProgress, "put into pool default")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for err != nil && ctx.Err() == nil {
		if err = r.PrePull(ctx, hostName); err != nil {
			want(t, err, provider.InProgress)
		}
	}
	if err != nil || len(r.markers()) != 1 {
		t.Errorf("%v; markers %q", err, r.markers())
	}
	if _, err := r.Create(t.Context(), r.spec()); err != nil {
		t.Errorf("the first instance waits: %v", err)
	}
	want(t, r.PrePull(t.Context(), "nowhere"), provider.Permanent, "no such host")
}

// The row H4c is proven on the real host; this is its decision.
func TestAnotherPinIsAnotherBase(t *testing.T) {
	content := qcow2(1 << 30)
	sum256, sum512 := sha256.Sum256(content), sha512.Sum512(content)
	url := imageFile(t, content)
	d := libvirttest.New(libvirttest.Config{})
	before := map[string]bool{}
	for _, image := range []config.Image{
		{}, {SHA256: hex.EncodeToString(sum256[:])}, {SHA512: hex.EncodeToString(sum512[:])},
		{SHA256: hex.EncodeToString(sum256[:]), DigestOf: config.DigestOfUnpacked},
		{Checksums: imageFile(t, []byte(hex.EncodeToString(sum256[:])+"  image\n"))},
	} {
		o := options(t, d)
		image.URL, image.Arch, image.Firmware = url, "x86_64", "bios"
		o.Entry.Images["debian"] = image
		r := rigOver(t, d, o)
		r.mustMake(t)
		after := r.markers()
		if len(after) != len(before)+1 {
			t.Errorf("%+v: markers %q, before %v", image, after, before)
		}
		for _, marker := range after {
			before[marker] = true
		}
		if len(before) != len(after) {
			t.Errorf("%+v: a base that was there is gone: %v", image, before)
		}
		again := rigOver(t, d, o)
		again.mustMake(t)
		if !slices.Equal(again.markers(), after) {
			t.Errorf("%+v: fetched again: %q", image, again.markers())
		}
	}
}
