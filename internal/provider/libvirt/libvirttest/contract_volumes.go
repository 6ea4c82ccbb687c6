// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func (c *contract) makeVolume(t *testing.T, name, format string, capacity uint64, backing string) {
	t.Helper()
	v := libvirtxml.StorageVolume{
		Name: name, Capacity: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: capacity},
		Target: &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: format}},
	}
	if format == "raw" {
		v.Allocation = &libvirtxml.StorageVolumeSize{Unit: "bytes"}
	}
	if backing != "" {
		v.BackingStore = &libvirtxml.StorageVolumeBackingStore{Path: backing, Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}}
	}
	text, err := v.Marshal()
	ok(t, "describe "+name, err)
	ok(t, "create "+name, c.CreateVolume(t.Context(), text))
}

func (c *contract) info(t *testing.T, name string) libvirt.VolumeInfo {
	t.Helper()
	info, err := c.Volume(t.Context(), name)
	ok(t, "look at "+name, err)
	return info
}

func (c *contract) volumes(t *testing.T) {
	name := c.prefix + "v.img"
	c.makeVolume(t, name, "raw", 3<<20, "")
	if info := c.info(t, name); info.Name != name || !strings.HasSuffix(info.Path, "/"+name) || info.Format != "raw" || info.Capacity != 3<<20 || info.BackingPath != "" {
		t.Errorf("got %+v", info)
	}
	text, err := (&libvirtxml.StorageVolume{Name: name, Capacity: &libvirtxml.StorageVolumeSize{Value: 1}}).Marshal()
	ok(t, "describe", err)
	wantCode(t, "create again", c.CreateVolume(t.Context(), text), libvirt.CodeVolumeExists)
	if info := c.info(t, name); info.Capacity != 3<<20 {
		t.Errorf("creating it again changed it: %+v", info)
	}
	marker := c.prefix + "v.img.empty"
	c.makeVolume(t, marker, "raw", 0, "")
	all, err := c.Volumes(t.Context())
	ok(t, "list", err)
	if !slices.Contains(all, name) || !slices.Contains(all, marker) {
		t.Errorf("%s and %s are not in %q", name, marker, all)
	}
	ok(t, "delete", c.DeleteVolume(t.Context(), name))
	wantCode(t, "delete again", c.DeleteVolume(t.Context(), name), libvirt.CodeNoVolume)
	wantCode(t, "create from what is no XML", c.CreateVolume(t.Context(), "<volume"), libvirt.CodeXMLDetail)
	wantCode(t, "create without a capacity", c.CreateVolume(t.Context(), "<volume><name>"+c.prefix+"x</name></volume>"), libvirt.CodeXMLError)
}

func (c *contract) uploads(t *testing.T) {
	name := c.prefix + "u.img"
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	c.makeVolume(t, name, "raw", uint64(len(data)), "")
	ok(t, "upload", c.Upload(t.Context(), name, bytes.NewReader(data), int64(len(data))))
	if info := c.info(t, name); info.Capacity != 1<<20 || info.Allocation < 1<<20 || (info.Physical != 0 && info.Physical != 1<<20) {
		t.Errorf("after the upload: %+v", info)
	}
	ok(t, "upload beyond the end", c.Upload(t.Context(), name, io.MultiReader(bytes.NewReader(data), strings.NewReader("more")), int64(len(data))+4))
	if info := c.info(t, name); info.Physical != 0 && info.Physical != 1<<20+4 {
		t.Errorf("after an upload beyond its end: %+v", info)
	}
}

func (c *contract) sparseUploads(t *testing.T) {
	const mib = 1 << 20
	data := bytes.Repeat([]byte("0123456789abcdef"), mib/16)
	for name, test := range map[string]struct {
		content     []byte
		least, most int64 // of it on the disk
	}{
		"a hole in the middle": {slices.Concat(data, make([]byte, 6*mib), data), 2 * mib, 3 * mib},
		"a hole at the start":  {slices.Concat(make([]byte, 3*mib), data), mib, 2 * mib},
		"a hole at the end":    {slices.Concat(data, make([]byte, 3*mib)), mib, 2 * mib},
		"nothing but zeros":    {make([]byte, 4*mib), 1, mib},
	} {
		volume := c.prefix + "sparse.img"
		length := int64(len(test.content))
		c.makeVolume(t, volume, "raw", uint64(length), "")
		ok(t, "upload of "+name, c.Upload(t.Context(), volume, bytes.NewReader(test.content), length))
		info := c.info(t, volume)
		if info.Capacity != length || info.Allocation < test.least || info.Allocation > test.most || (info.Physical != 0 && info.Physical != length) {
			t.Errorf("%s: after the upload %+v", name, info)
		}
		ok(t, "delete", c.DeleteVolume(t.Context(), volume))
	}
}

var errReader = errors.New("the reader broke")

type brokenReader struct{ left int }

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errReader
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

func (c *contract) brokenUpload(t *testing.T) {
	name := c.prefix + "b.img"
	c.makeVolume(t, name, "raw", 4<<20, "")
	err := c.Upload(t.Context(), name, &brokenReader{left: 1 << 20}, 4<<20)
	if !errors.Is(err, errReader) {
		t.Errorf("got %v, want the reader's own error in the chain", err)
	}
	c.info(t, name)
	ok(t, "delete", c.DeleteVolume(t.Context(), name))
}

func (c *contract) overlays(t *testing.T) {
	base, overlay := c.prefix+"base.img", c.prefix+"o.qcow2"
	c.makeVolume(t, base, "raw", 1<<20, "")
	path := c.info(t, base).Path
	c.makeVolume(t, overlay, "qcow2", 1<<30, path)
	if info := c.info(t, overlay); info.Format != "qcow2" || info.Capacity != 1<<30 || info.BackingPath != path {
		t.Errorf("got %+v", info)
	}
	_, err := c.Pool(t.Context(), true)
	ok(t, "refresh", err)
	if info := c.info(t, overlay); info.Format != "qcow2" || info.Capacity != 1<<30 || info.BackingPath != path {
		t.Errorf("after a refresh: %+v", info)
	}
	text, err := (&libvirtxml.StorageVolume{
		Name: c.prefix + "lost.qcow2", Capacity: &libvirtxml.StorageVolumeSize{Value: 1 << 20},
		Target:       &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
		BackingStore: &libvirtxml.StorageVolumeBackingStore{Path: path + ".gone", Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	}).Marshal()
	ok(t, "describe", err)
	wantCode(t, "an overlay of nothing", c.CreateVolume(t.Context(), text), libvirt.CodeSystemError)
}
