// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"slices"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func (c *contract) pool(t *testing.T) {
	before, err := c.Pool(t.Context(), true)
	ok(t, "refresh", err)
	if !before.Active || before.Type == "" || before.Path == "" || before.UUID == "" || before.Capacity <= 0 || before.Available < 0 || before.Available > before.Capacity {
		t.Errorf("got %+v", before)
	}
	again, err := c.Pool(t.Context(), false)
	ok(t, "look", err)
	if again.UUID != before.UUID || again.Capacity != before.Capacity {
		t.Errorf("two looks differ: %+v, %+v", before, again)
	}
	wantCode(t, "start an active pool", c.StartPool(t.Context()), libvirt.CodeOperationInvalid)
}

// cachedPool is what a daemon knows of a pool whose folder others write to.
func (c *contract) cachedPool(t *testing.T) {
	const bytes = 64 << 20
	name := c.prefix + "others.img"
	look := func(refresh bool) (libvirt.PoolInfo, bool) {
		t.Helper()
		info, err := c.Pool(t.Context(), refresh)
		ok(t, "look", err)
		all, err := c.Volumes(t.Context())
		ok(t, "list", err)
		return info, slices.Contains(all, name)
	}
	before, _ := look(true)
	c.world.WriteFile(t, name, bytes)
	if cached, listed := look(false); cached != before || listed {
		t.Errorf("the daemon noticed a file without a refresh: %+v, listed %t; before: %+v", cached, listed, before)
	}
	_, err := c.Volume(t.Context(), name)
	wantCode(t, "a file that the daemon does not know", err, libvirt.CodeNoVolume)
	wantCode(t, "a volume where a file is that the daemon does not know", c.CreateVolume(t.Context(), "<volume><name>"+name+"</name><capacity>1</capacity></volume>"), libvirt.CodeOperationInvalid)
	after, listed := look(true)
	if after.Available == before.Available || !listed {
		t.Errorf("after a refresh: %+v, listed %t; before: %+v", after, listed, before)
	}
	if info := c.info(t, name); info.Capacity != bytes || info.Format != "raw" {
		t.Errorf("the file is %+v", info)
	}
	c.world.RemoveFile(t, name)
	if cached, listed := look(false); cached != after || !listed {
		t.Errorf("the daemon noticed that a file is gone without a refresh: %+v, listed %t; before: %+v", cached, listed, after)
	}
	_, err = c.Volume(t.Context(), name)
	wantCode(t, "a volume whose file is gone", err, libvirt.CodeNoVolume)
	if _, listed := look(true); listed {
		t.Error("a file that is gone is listed after a refresh")
	}
	_, err = c.Volume(t.Context(), name)
	wantCode(t, "a file that is gone, after a refresh", err, libvirt.CodeNoVolume)
	c.makeVolume(t, name, "raw", 4096, "")
	c.world.RemoveFile(t, name)
	ok(t, "delete a volume whose file is gone", c.DeleteVolume(t.Context(), name))
}
