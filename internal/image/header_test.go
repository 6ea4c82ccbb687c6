// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// qcow2 is a header by the specification; edits change it.
func qcow2(version uint32, edits ...func([]byte)) []byte {
	h := make([]byte, 1024)
	copy(h, "QFI\xfb")
	binary.BigEndian.PutUint32(h[4:], version)
	binary.BigEndian.PutUint32(h[20:], 16)
	binary.BigEndian.PutUint64(h[24:], 4<<30)
	if version == 3 {
		binary.BigEndian.PutUint32(h[100:], 112)
	}
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func put32(at int, v uint32) func([]byte) {
	return func(h []byte) { binary.BigEndian.PutUint32(h[at:], v) }
}

func put64(at int, v uint64) func([]byte) {
	return func(h []byte) { binary.BigEndian.PutUint64(h[at:], v) }
}

// X4 and L7 are proven on a real host; these are their rules.
func TestInspect(t *testing.T) {
	const gib4 = 4 << 30
	for name, test := range map[string]struct {
		header []byte
		want   Info
		says   string // "" means accepted
	}{
		"qcow2 version 2":         {qcow2(2), Info{QCOW2, gib4}, ""},
		"qcow2 version 3":         {qcow2(3), Info{QCOW2, gib4}, ""},
		"qcow2 dirty":             {qcow2(3, put64(72, 1)), Info{QCOW2, gib4}, ""},
		"qcow2 zstd, extended L2": {qcow2(3, put64(72, 8|16)), Info{QCOW2, gib4}, ""},
		"qcow2 other extension":   {qcow2(3, put32(112, 0x6803f857), put32(116, 48)), Info{QCOW2, gib4}, ""},
		"raw, empty":              {make([]byte, 512), Info{Raw, 0}, ""},
		"raw, boot sector":        {append(bytes.Repeat([]byte{0xeb}, 510), 0x55, 0xaa), Info{Raw, 0}, ""},

		"backing file":                       {qcow2(3, put64(8, 600), put32(16, 11)), Info{}, "names a backing file"},
		"backing file, version 2":            {qcow2(2, put64(8, 600), put32(16, 11)), Info{}, "names a backing file"},
		"backing offset alone":               {qcow2(3, put64(8, 600)), Info{}, "names a backing file"},
		"backing length alone":               {qcow2(3, put32(16, 1)), Info{}, "names a backing file"},
		"backing format":                     {qcow2(3, put32(112, 0xe2792aca), put32(116, 3)), Info{}, "names a backing format"},
		"data file bit":                      {qcow2(3, put64(72, 4)), Info{}, "data in another file"},
		"data file name":                     {qcow2(3, put32(112, 0x44415441), put32(116, 11)), Info{}, "data in another file"},
		"data file name, version 2":          {qcow2(2, put32(72, 0x44415441), put32(76, 11)), Info{}, "data in another file"},
		"data file name after another":       {qcow2(3, put32(112, 1), put32(116, 3), put32(128, 0x44415441)), Info{}, "data in another file"},
		"encrypted":                          {qcow2(3, put32(32, 2)), Info{}, "encrypted"},
		"corrupt":                            {qcow2(3, put64(72, 2)), Info{}, "corrupt"},
		"unknown feature":                    {qcow2(3, put64(72, 1<<63)), Info{}, "0x8000000000000000"},
		"version 1":                          {qcow2(1), Info{}, "version 1"},
		"version 4":                          {qcow2(4), Info{}, "version 4"},
		"no size":                            {qcow2(3, put64(24, 0)), Info{}, "virtual size 0"},
		"size past all":                      {qcow2(3, put64(24, 1<<63)), Info{}, "virtual size"},
		"cluster bits":                       {qcow2(3, put32(20, 63)), Info{}, "2^63"},
		"header too short":                   {qcow2(3, put32(100, 96)), Info{}, "header of 96"},
		"header past the cluster":            {qcow2(3, put32(100, 0xfffffff8)), Info{}, "header of"},
		"extension past the end":             {qcow2(3, put32(112, 1), put32(116, 0xffffffff)), Info{}, "extension of"},
		"cut off, version 2":                 {qcow2(2)[:71], Info{}, "cut off"},
		"cut off, version 3":                 {qcow2(3)[:103], Info{}, "cut off"},
		"magic alone":                        {[]byte("QFI\xfb"), Info{}, "cut off"},
		"short":                              {make([]byte, 511), Info{}, "511 bytes"},
		"gzip":                               {[]byte("\x1f\x8b\x08"), Info{}, "packed twice"},
		"xz":                                 {[]byte("\xfd7zXZ\x00"), Info{}, "packed twice"},
		"VMDK":                               {[]byte("KDMV"), Info{}, "qemu-img convert"},
		"a page that says where the file is": {[]byte("<!DOCTYPE html>"), Info{}, "web page"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Inspect(test.header)
			if test.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || KindOf(err) != Permanent {
				t.Errorf("error %v, want a Permanent one that says %q", err, test.says)
			}
		})
	}
}

// What qemu-img itself writes is read as it is meant.
func TestInspectWhatQemuImgWrites(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed: apt-get install qemu-utils")
	}
	for name, test := range map[string]struct {
		options string
		more    []string
		says    string
	}{
		"version 2":    {"compat=0.10", nil, ""},
		"version 3":    {"compat=1.1", nil, ""},
		"zstd":         {"compression_type=zstd,extended_l2=on,cluster_size=2M", nil, ""},
		"small":        {"cluster_size=512", nil, ""},
		"backing file": {"", []string{"-b", "base.raw", "-F", "raw"}, "backing file"},
		"data file":    {"data_file=data.raw", nil, "another file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "base.raw"), make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"create", "-q", "-f", "qcow2"}
			if test.options != "" {
				args = append(args, "-o", test.options)
			}
			cmd := exec.CommandContext(t.Context(), "qemu-img", append(append(args, test.more...), "image.qcow2", "1M")...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
			}
			data, err := os.ReadFile(filepath.Join(dir, "image.qcow2"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Inspect(data[:min(len(data), HeaderBytes)])
			if test.says == "" && (err != nil || got != Info{QCOW2, 1 << 20}) {
				t.Errorf("%+v, %v", got, err)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 512))
	f.Add(qcow2(2))
	f.Add(qcow2(3))
	f.Add(qcow2(3, put64(8, 600), put32(16, 11)))
	f.Add(qcow2(3, put64(72, 4)))
	f.Add(qcow2(3, put32(112, 1), put32(116, 0xffffffff)))
	f.Add(qcow2(3, put32(112, 0x44415441), put32(116, 11)))
	f.Fuzz(func(t *testing.T, header []byte) {
		info, err := Inspect(header)
		if err != nil {
			if KindOf(err) != Permanent {
				t.Errorf("error of kind %v: %v", KindOf(err), err)
			}
			return
		}
		if !bytes.HasPrefix(header, qcow2Magic) {
			if info != (Info{Format: Raw}) {
				t.Errorf("%+v without qcow2's magic", info)
			}
			return
		}
		if info.Format != QCOW2 || info.VirtualSize <= 0 {
			t.Errorf("%+v with qcow2's magic", info)
		}
		if !bytes.Equal(header[8:20], make([]byte, 12)) || binary.BigEndian.Uint32(header[32:]) != 0 {
			t.Error("an image with a backing file, or an encrypted one, was accepted")
		}
		if header[7] == 3 && header[79]&4 != 0 {
			t.Error("an image with a data file was accepted")
		}
	})
}
