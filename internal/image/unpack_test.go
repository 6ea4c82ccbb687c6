// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// gzipped, zstandard and fixture are ways to pack.
func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, bytes.NewReader(content)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// spooling is a depot with a spool of so many bytes.
func spooling(t *testing.T, limit int64) *Depot {
	t.Helper()
	dir := t.TempDir()
	d, err := NewDepot(DepotOptions{SpoolDir: dir, SpoolBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		if d.spool.used != 0 {
			t.Errorf("%d bytes of the spool are still promised", d.spool.used)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in the spool's folder: %v, %v", left, err)
		}
	})
	return d
}

// contents serves bytes as a plain file server does.
func contents(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	}
}

func TestPackedImages(t *testing.T) {
	small := qcow2(3)
	sum512 := sha512.Sum512(disk)
	for name, test := range map[string]struct {
		packed, content []byte
		source          Source
		format          Format
		virtual         int64
	}{
		"gzip":                      {gzipped(t, disk), disk, Source{}, Raw, int64(len(disk))},
		"gzip in two members":       {append(gzipped(t, disk), gzipped(t, disk)...), append(bytes.Clone(disk), disk...), Source{}, Raw, 2 * int64(len(disk))},
		"xz":                        {fixture(t, "disk.xz"), disk, Source{}, Raw, int64(len(disk))},
		"xz in two streams":         {fixture(t, "two-streams.xz"), append(bytes.Clone(disk), disk...), Source{}, Raw, 2 * int64(len(disk))},
		"xz with a filter for code": {fixture(t, "x86-filter.xz"), disk, Source{}, Raw, int64(len(disk))},
		"zstd":                      {zstandard(t, disk), disk, Source{Format: Raw}, Raw, int64(len(disk))},
		"qcow2 in gzip":             {gzipped(t, small), small, Source{Format: QCOW2}, QCOW2, 4 << 30},
		"digest of what it is":      {zstandard(t, disk), disk, Source{SHA256: digestOf(disk), Unpacked: true}, Raw, int64(len(disk))},
		"sha512 of what it is":      {zstandard(t, disk), disk, Source{SHA512: hex.EncodeToString(sum512[:]), Unpacked: true}, Raw, int64(len(disk))},
		"digest as it is served":    {fixture(t, "disk.xz"), disk, Source{SHA256: digestOf(fixture(t, "disk.xz"))}, Raw, int64(len(disk))},
	} {
		t.Run(name, func(t *testing.T) {
			if test.source.SHA256 == "" && test.source.SHA512 == "" {
				test.source.SHA256 = digestOf(test.packed)
			}
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, test.packed, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, url := range []string{serve(t, contents(test.packed)), "file://" + path} {
				test.source.URL = url
				sink := &memory{}
				got, err := spooling(t, 1<<30).Fetch(t.Context(), &Opener{}, test.source, sink, nil)
				want := Result{Info{test.format, test.virtual}, digestOf(test.content), true, int64(len(test.content))}
				if err != nil || got != want {
					t.Errorf("%+v, %v; want %+v", got, err, want)
				}
				if sink.wrote(t, "write", "publish"); !bytes.Equal(sink.stored, test.content) {
					t.Errorf("%d bytes were stored, not those that were packed", len(sink.stored))
				}
			}
		})
	}
}

func TestPackedImagesRefused(t *testing.T) {
	damaged := bytes.Clone(gzipped(t, bytes.Repeat(disk, 2)))
	damaged[len(damaged)-3] ^= 1
	backed := qcow2(3, put64(8, 600), put32(16, 11))
	for name, test := range map[string]struct {
		packed []byte
		most   int64
		spool  int64
		kind   Kind
		says   string
	}{
		"M11: a bomb in zstd":       {zstandard(t, make([]byte, 8<<20)), 1 << 20, 1 << 30, Permanent, "unpacks to more than maxImageBytes, which is 1048576"},
		"M11: a bomb in gzip":       {gzipped(t, make([]byte, 8<<20)), 1 << 20, 1 << 30, Permanent, "unpacks to more than maxImageBytes"},
		"M11: a bomb in xz":         {fixture(t, "zeros-96MiB.xz"), 1 << 20, 1 << 30, Permanent, "unpacks to more than maxImageBytes"},
		"more than the spool takes": {fixture(t, "zeros-96MiB.xz"), 1 << 30, 32 << 20, Capacity, "no room in the image spool"},
		"no spool":                  {gzipped(t, disk), 0, 0, Permanent, "image spool, which is off"},
		"a window for memory, xz":   {fixture(t, "window-64MiB.xz"), 0, 1 << 30, Permanent, "needs more than 32 MiB of memory"},
		"a window for memory, zstd": {[]byte("\x28\xb5\x2f\xfd\x00\x80\x01\x00\x00"), 0, 1 << 30, Permanent, "needs more than 32 MiB of memory"},
		"damaged":                   {damaged, 0, 1 << 30, Permanent, "is damaged gzip data"},
		"packed twice":              {gzipped(t, fixture(t, "disk.xz")), 0, 1 << 30, Permanent, "packed twice"},
		// X4 is proven on a real host; this is its rule for packed images.
		"with a backing file": {gzipped(t, backed), 0, 1 << 30, Permanent, "names a backing file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := direct
			if test.spool > 0 {
				d = spooling(t, test.spool)
			}
			sink := &memory{}
			source := Source{URL: serve(t, contents(test.packed)), SHA256: digestOf(test.packed)}
			_, err := d.Fetch(t.Context(), &Opener{MaxBytes: test.most}, source, sink, nil)
			wantError(t, err, test.kind, test.says)
			sink.wrote(t)
		})
	}
}

// M13 is proven on a real host; this is its rule for packed images.
func TestWrongDigestOfPackedImages(t *testing.T) {
	packed := gzipped(t, disk)
	url := serve(t, contents(packed))
	for says, source := range map[string]Source{
		"expected sha256 " + some256 + ", and what was served has " + digestOf(packed):  {SHA256: some256},
		"expected sha256 " + some256 + ", and what it unpacks to has " + digestOf(disk): {SHA256: some256, Unpacked: true},
		"expected sha512 " + some512: {SHA512: some512},
	} {
		source.URL = url
		sink := &memory{}
		_, err := spooling(t, 1<<30).Fetch(t.Context(), &Opener{}, source, sink, nil)
		wantError(t, err, Permanent, says)
		sink.wrote(t)
	}
}

func TestPackedImagesThatBreakOff(t *testing.T) {
	packed := zstandard(t, bytes.Repeat([]byte(strings.Repeat("a", 1000)+some512), 4000))
	server := &breaking{content: packed, etag: `"one"`, after: []int{100, 200}}
	sink := &memory{}
	_, err := spooling(t, 1<<30).Fetch(t.Context(), &Opener{}, Source{URL: serve(t, server.ServeHTTP), SHA256: digestOf(packed)}, sink, nil)
	if err != nil {
		t.Error(err)
	}
	server.asked(t, "", "bytes=100-", "bytes=300-")
	server = &breaking{content: packed, etag: `"one"`, after: []int{100, 0, 0, 0}}
	_, err = spooling(t, 1<<30).Fetch(t.Context(), &Opener{}, Source{URL: serve(t, server.ServeHTTP), SHA256: digestOf(packed)}, sink, nil)
	wantError(t, err, Transient, "after 100 of")
}

// FuzzUnpack: whatever claims to be packed, it ends within its bound, or with an error that says what to do.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x1f\x8b"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x80\x01\x00\x00"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc\x99\xe9\xd8\x51"))
	for _, name := range []string{"disk.xz", "two-streams.xz", "x86-filter.xz", "window-64MiB.xz"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(disk[:4096]); err != nil || w.Close() != nil {
		f.Fatal("gzip")
	}
	f.Add(small.Bytes())
	const most = 1 << 20
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		p, err := packingOf(r)
		if p == nil || err != nil {
			return
		}
		u, err := p.unpack(Source{URL: "https://example.org/a"}, r, most)
		n := int64(0)
		if err == nil {
			defer u.release()
			n, err = io.Copy(io.Discard, u)
		}
		if n > most {
			t.Fatalf("%d bytes", n)
		}
		if err != nil && KindOf(err) != Permanent {
			t.Fatalf("%v: %v", KindOf(err), err)
		}
	})
}
