// SPDX-License-Identifier: Apache-2.0

//go:build live

package upload

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

const mib = 1 << 20

// span is where an image has data.
type span struct{ from, to int64 }

// sparseFile makes an image with data in some places; holes are holes of the file, or zeros that it holds.
func sparseFile(t *testing.T, length int64, data []span, holes bool) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "image")
	content = make([]byte, length)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range data {
		_, _ = rand.Read(content[s.from:s.to])
		if _, err := f.WriteAt(content[s.from:s.to], s.from); err != nil {
			t.Fatal(err)
		}
	}
	if !holes {
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(length), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestAnImageArrivesWithItsHoles(t *testing.T) {
	host := kvmhost.Up(t, uploadHost)
	for name, image := range map[string]struct {
		length int64
		data   []span
	}{
		"no holes":                {4 * mib, []span{{0, 4 * mib}}},
		"a hole in the middle":    {32 * mib, []span{{0, mib}, {31 * mib, 32 * mib}}},
		"holes at odd places":     {24*mib + 4321, []span{{7, 1234567}, {9*mib + 1, 9*mib + 2}, {20 * mib, 21*mib - 3}}},
		"a hole at the end":       {40 * mib, []span{{0, 3 * mib}}},
		"a hole at the beginning": {40*mib + 1, []span{{39 * mib, 40 * mib}}},
		"nothing but a hole":      {40 * mib, nil},
	} {
		for _, holes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, of the file: %v", name, holes), func(t *testing.T) {
				path, content := sparseFile(t, image.length, image.data, holes)
				o := operate(t, host, path)
				base, marker := o.pull()
				if got := o.sum(base); got != digestOf(content) || marker.SHA256 != got || marker.Size != image.length {
					t.Errorf("the base has sha256 %s; the marker says %+v, the image has %s", got, marker, digestOf(content))
				}
				// A block of 64 KiB with data in it is stored whole; so are the last one, and the first MiB of a large image.
				most := int64(mib + 64<<10)
				for _, s := range image.data {
					most += s.to - s.from + 128<<10
				}
				if base.Physical != image.length || base.Allocation == 0 || base.Allocation > most {
					t.Errorf("the base is %+v, and at most %d bytes of it are to be on the disk", base, most)
				}
			})
		}
	}
}

func TestHollowBasesWithHoles(t *testing.T) {
	host := kvmhost.Up(t, uploadHost)
	t.Run("H4d: of a published base with holes nothing reached the disk, though its length is right", func(t *testing.T) {
		path, content := sparseFile(t, 40*mib, []span{{0, mib}}, true)
		o := operate(t, host, path)
		base, marker := o.pull()
		if _, err := host.Exec(t.Context(), "fallocate", "--punch-hole", "--offset", "0", "--length", strconv.FormatInt(marker.Size, 10), base.Path); err != nil {
			t.Fatal(err)
		}
		next, _ := o.pull()
		if next.Name == base.Name || o.sum(next) != digestOf(content) {
			t.Errorf("the base in use is %s; the hollow one was %s", next.Name, base.Name)
		}
		for _, v := range o.own(t.Context()) {
			if volume, _, err := libvirt.ParseMarker(v); err == nil && volume == base.Name {
				t.Errorf("the hollow base is still published, by %s", v)
			}
		}
	})
}
