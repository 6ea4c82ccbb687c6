// SPDX-License-Identifier: Apache-2.0

package iso9660

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var seedFiles = []File{
	{Name: "user-data", Mode: 0o600, Data: []byte("#cloud-config\n")},
	{Name: "meta-data", Mode: 0o644, Data: []byte("instance-id: a\n")},
	{Name: "egress-agent", Mode: 0o755, Data: bytes.Repeat([]byte("agent"), 5000)},
	{Name: "empty", Mode: 0o400},
	{Name: "one-sector", Mode: 0o444, Data: bytes.Repeat([]byte{7}, SectorSize)},
}

func TestWriteIsWhatTheReaderGives(t *testing.T) {
	want, err := Write("cidata", seedFiles)
	if err != nil {
		t.Fatal(err)
	}
	image, err := New("cidata", seedFiles)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := io.ReadAll(iotest.OneByteReader(image.Reader()))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("reader gives %d bytes, %v; want the %d bytes of Write", len(got), err, len(want))
		}
	}
	if image.Size() != int64(len(want)) || len(want)%SectorSize != 0 {
		t.Errorf("size %d, %d bytes: want equal and whole sectors", image.Size(), len(want))
	}
	if blocks := binary.LittleEndian.Uint32(want[16*SectorSize+80:]); int(blocks)*SectorSize != len(want) {
		t.Errorf("descriptor says %d sectors, there are %d", blocks, len(want)/SectorSize)
	}
}

func TestOutputIsDeterministicWhateverTheOrder(t *testing.T) {
	want, err := Write("cidata", seedFiles)
	if err != nil {
		t.Fatal(err)
	}
	var turned []File
	for _, f := range seedFiles {
		turned = append([]File{f}, turned...)
	}
	got, err := Write("cidata", turned)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("same files in another order give other bytes (%v)", err)
	}
}

func TestContentsReadBack(t *testing.T) {
	volume, err := Write("EGRESS_AGENT", seedFiles)
	if err != nil {
		t.Fatal(err)
	}
	got := readBack(t, volume)
	want := map[string]File{}
	for _, f := range seedFiles {
		if f.Data == nil {
			f.Data = []byte{}
		}
		want[f.Name] = f
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDirectoryOfManySectors(t *testing.T) {
	var files []File
	for i := range MaxFiles {
		files = append(files, File{Name: strings.Repeat("n", 20) + string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}), Mode: 0o644, Data: []byte{byte(i)}})
	}
	volume, err := Write("many", files)
	if err != nil {
		t.Fatal(err)
	}
	got := readBack(t, volume)
	if len(got) != MaxFiles {
		t.Fatalf("%d files read back, want %d", len(got), MaxFiles)
	}
	for _, f := range files {
		if diff := cmp.Diff(f, got[f.Name]); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRefused(t *testing.T) {
	file := func(name string) []File { return []File{{Name: name, Mode: 0o644}} }
	for name, test := range map[string]struct {
		label string
		files []File
		says  string
	}{
		"no label":               {"", nil, "volume label"},
		"label with a space":     {"ci data", nil, "volume label"},
		"label of 33":            {strings.Repeat("a", 33), nil, "volume label"},
		"no name":                {"a", file(""), "file name"},
		"slash":                  {"a", file("a/b"), "file name"},
		"dot":                    {"a", file("."), "file name"},
		"dot dot":                {"a", file(".."), "file name"},
		"hidden":                 {"a", file(".profile"), "file name"},
		"newline":                {"a", file("a\n"), "file name"},
		"NUL":                    {"a", file("a\x00"), "file name"},
		"not ASCII":              {"a", file("größe"), "file name"},
		"name of 31":             {"a", file(strings.Repeat("a", 31)), "file name"},
		"twice":                  {"a", append(file("a"), file("a")...), "the same"},
		"differs in case only":   {"a", append(file("a"), file("A")...), "the same"},
		"differs in a dash only": {"a", append(file("a-b"), file("a_b")...), "the same"},
		"directory":              {"a", []File{{Name: "d", Mode: fs.ModeDir | 0o755}}, "permission bits"},
		"setuid":                 {"a", []File{{Name: "d", Mode: fs.ModeSetuid | 0o755}}, "permission bits"},
		"too many files":         {"a", make([]File, MaxFiles+1), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Write(test.label, test.files); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func FuzzWrite(f *testing.F) {
	f.Add("cidata", "meta-data", uint32(0o644), []byte("x"))
	f.Add("EGRESS_AGENT", "egress-agent", uint32(0o755), bytes.Repeat([]byte{1}, SectorSize+1))
	f.Add("", "../x", uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, label, name string, mode uint32, data []byte) {
		volume, err := Write(label, []File{{Name: name, Mode: fs.FileMode(mode), Data: data}})
		if err != nil {
			return
		}
		got := readBack(t, volume)
		want := map[string]File{name: {Name: name, Mode: fs.FileMode(mode), Data: append([]byte{}, data...)}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// readBack is a reader of its own, by the standards and not by the writer's tables: names and modes from Rock Ridge, data by extent.
func readBack(t *testing.T, volume []byte) map[string]File {
	t.Helper()
	root := volume[16*SectorSize+156:]
	start, length := binary.LittleEndian.Uint32(root[2:]), binary.BigEndian.Uint32(root[14:])
	directory := volume[start*SectorSize:][:length]
	files := map[string]File{}
	for at, n := 0, 0; at < len(directory); n++ {
		size := int(directory[at])
		if size == 0 {
			at = (at/SectorSize + 1) * SectorSize
			continue
		}
		if at/SectorSize != (at+size-1)/SectorSize {
			t.Fatalf("record at %d crosses a sector's end", at)
		}
		record := directory[at : at+size]
		at += size
		if n < 2 {
			continue // the directory itself and its parent
		}
		f := File{}
		extent, bytes := binary.LittleEndian.Uint32(record[2:]), binary.LittleEndian.Uint32(record[10:])
		f.Data = volume[extent*SectorSize:][:bytes]
		use := record[33+int(record[32])+1-int(record[32])%2:]
		for len(use) > 3 {
			switch entry := use[:use[2]]; string(entry[:2]) {
			case "NM":
				f.Name = string(entry[5:])
			case "PX":
				f.Mode = fs.FileMode(binary.LittleEndian.Uint32(entry[4:]) & 0o7777)
			}
			use = use[use[2]:]
		}
		files[f.Name] = f
	}
	return files
}
