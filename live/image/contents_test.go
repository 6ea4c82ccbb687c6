// SPDX-License-Identifier: Apache-2.0

//go:build live

package image

import (
	"bytes"
	"compress/gzip"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

func TestDigests(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	_, _, empty := kvmhost.Images(t)
	right := config.Image{URL: "file://" + empty, SHA256: digestOf(read(t, empty))}
	cluster := newCluster(t, host)
	first := newUID()
	o := operate(t, host, cluster, right, nil)
	o.mustMake(first)
	before := o.bases()

	t.Run("M13: a mistyped sha256 is Permanent with both digests, and nothing that exists is harmed", func(t *testing.T) {
		wrong := right
		wrong.SHA256 = strings.Repeat("0", 64)
		mistyped := operate(t, host, cluster, wrong, nil)
		second := newUID()
		_, err := mistyped.make(second)
		wantError(t, err, provider.Permanent, wrong.SHA256, right.SHA256)
		mistyped.remove(second)
		if after := o.bases(); !maps.Equal(before, after) {
			t.Errorf("bases %v, were %v", after, before)
		}
		if all := o.own("-base-"); len(all) != 2 {
			t.Errorf("besides the base and its marker there are %q", all)
		}
		if base := o.backing(first); before[base].SHA256 != o.sum(base) || !o.runs(first) {
			t.Errorf("the guest that runs on base %s is harmed", base)
		}
		corrected := operate(t, host, cluster, right, nil)
		corrected.mustMake(second)
		if after := o.bases(); !maps.Equal(before, after) {
			t.Errorf("the corrected image was fetched again: %v, was %v", after, before)
		}
		corrected.remove(second)
	})
	o.remove(first)
}

func TestFormats(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	_, _, empty := kvmhost.Images(t)
	dir := t.TempDir()

	t.Run("L7: a raw image behind a URL that says nothing is taken for raw", func(t *testing.T) {
		raw := filepath.Join(dir, "raw")
		qemuImg(t, "convert", "-O", "raw", empty, raw)
		content := read(t, raw)
		url := serve(t, func() []byte { return content })
		o := operate(t, host, newCluster(t, host), config.Image{URL: url + "/download?id=7", SHA256: digestOf(content)}, nil)
		uid := newUID()
		o.mustMake(uid)
		base := o.backing(uid)
		if c := o.bases()[base]; c.Format != config.FormatRaw || c.VirtualSize != int64(len(content)) || c.SHA256 != digestOf(content) {
			t.Errorf("the marker says %+v", c)
		}
		overlay, err := o.hand.Volume(t.Context(), o.names.Overlay(uid))
		if err != nil {
			t.Fatal(err)
		}
		out, err := host.Exec(t.Context(), "qemu-img", "info", "-U", "--output=json", overlay.Path)
		if err != nil || !strings.Contains(out, `"backing-filename-format": "raw"`) || !o.runs(uid) {
			t.Errorf("%v\n%s", err, out)
		}
		o.remove(uid)
	})

	t.Run("X4: a qcow2 that would read the host's files is refused before any VM sees it", func(t *testing.T) {
		backed, linked := filepath.Join(dir, "backed"), filepath.Join(dir, "linked")
		qemuImg(t, "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/shadow", backed, "1G")
		qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+filepath.Join(dir, "data")+",data_file_raw=on", linked, "1G")
		packed := filepath.Join(dir, "packed")
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write(read(t, backed)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		write(t, packed, out.Bytes())
		for path, says := range map[string]string{backed: "backing file", linked: "data in another file", packed: "backing file"} {
			o := operate(t, host, newCluster(t, host), config.Image{URL: "file://" + path}, nil)
			uid := newUID()
			_, err := o.make(uid)
			wantError(t, err, provider.Permanent, says)
			if left := o.own(""); len(left) > 0 {
				t.Errorf("%s: there are volumes %q", says, left)
			}
			if _, err := o.hand.Domain(t.Context(), o.names.Domain(uid)); err == nil {
				t.Errorf("%s: there is a domain", says)
			}
		}
	})
}

func TestBasesThatChange(t *testing.T) {
	host := kvmhost.Up(t, imageHost)
	_, _, empty := kvmhost.Images(t)
	one := read(t, empty)
	two := append(bytes.Clone(one), make([]byte, 64<<10)...) // the same to a guest, and other content

	t.Run("H4c: the URL's content and digest change under one key", func(t *testing.T) {
		served := one
		url := serve(t, func() []byte { return served })
		cluster := newCluster(t, host)
		old := operate(t, host, cluster, config.Image{URL: url, SHA256: digestOf(one)}, nil)
		first, second := newUID(), newUID()
		old.mustMake(first)
		base := old.backing(first)

		served = two
		o := operate(t, host, cluster, config.Image{URL: url, SHA256: digestOf(two)}, nil)
		o.mustMake(second)
		if next := o.backing(second); next == base || o.sum(next) != digestOf(two) {
			t.Errorf("the second guest is on %s, the first on %s", next, base)
		}
		if o.backing(first) != base || o.sum(base) != digestOf(one) || !o.runs(first) || !o.runs(second) {
			t.Errorf("the first guest is not on its base %s as it was", base)
		}
		o.remove(first)
		o.remove(second)
	})

	t.Run("H4d: a base that lost its end is taken out of use, and fetched again under another name", func(t *testing.T) {
		o := operate(t, host, newCluster(t, host), config.Image{URL: "file://" + empty, SHA256: digestOf(one)}, nil)
		first, second := newUID(), newUID()
		o.mustMake(first)
		base := o.backing(first)
		o.remove(first)
		info, err := o.hand.Volume(t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := host.Exec(t.Context(), "truncate", "-s", "1000", info.Path); err != nil {
			t.Fatal(err)
		}
		o.mustMake(second)
		next := o.backing(second)
		if next == base || o.sum(next) != digestOf(one) || !o.runs(second) {
			t.Errorf("the guest is on %s; the hollow base was %s", next, base)
		}
		if published := slices.Collect(maps.Keys(o.bases())); !slices.Equal(published, []string{next}) {
			t.Errorf("published are %q", published)
		}
		o.remove(second)
	})
}
