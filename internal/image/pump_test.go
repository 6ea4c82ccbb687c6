// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// extents is a file with data at 1 MiB and at 3 MiB, half a MiB each, and length bytes in all.
func extents(t *testing.T, length int64) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 512<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	for _, at := range []int64{1 << 20, 3 << 20} {
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(length), f.Close()); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

// watched is a file that notes how much of it was read.
type watched struct {
	*os.File
	read int
}

func (w *watched) ReadAt(b []byte, at int64) (int, error) {
	n, err := w.File.ReadAt(b, at)
	w.read += n
	return n, err
}

func openWatched(t *testing.T, path string) *watched {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &watched{File: f}
}

func TestHolesOfAFileAreNotRead(t *testing.T) {
	for name, length := range map[string]int64{"ends in data": 3<<20 + 512<<10, "ends in a hole": 8<<20 + 5} {
		t.Run(name, func(t *testing.T) {
			path, want := extents(t, length)
			w := openWatched(t, path)
			if _, err := w.Seek(0, 4); err != nil {
				t.Fatalf("the tests' folder is on a file system without holes: %v", err)
			}
			o := &Opener{openPath: func(string) (file, error) { return w, nil }}
			body, n, err := o.Open(t.Context(), Source{URL: "file://" + path})
			if err != nil || n != length {
				t.Fatal(n, err)
			}
			got, err := io.ReadAll(body)
			if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, or others, %v", len(got), err)
			}
			if w.read > 1<<20+64<<10 {
				t.Errorf("%d bytes were read", w.read)
			}
		})
	}
}

// ignorant is a file of a file system that knows of no holes.
type ignorant struct{ *os.File }

func (f ignorant) Seek(at int64, whence int) (int64, error) {
	if whence > io.SeekEnd {
		return 0, &fs.PathError{Op: "seek", Err: fs.ErrInvalid}
	}
	return f.File.Seek(at, whence)
}

func TestFilesWithoutHolesAreReadAsTheyAre(t *testing.T) {
	path, want := extents(t, 5<<20)
	for name, f := range map[string]file{
		"a file system that knows of none": ignorant{openWatched(t, path).File},
		"a file that cannot be asked":      struct{ file }{openWatched(t, path)},
	} {
		o := &Opener{openPath: func(string) (file, error) { return f, nil }}
		body, _, err := o.Open(t.Context(), Source{URL: "file://" + path})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, or others, %v", name, len(got), err)
		}
	}
}

// A file that is cut off while it is read does not go on as a hole.
func TestAFileThatIsCutOffEnds(t *testing.T) {
	path, _ := extents(t, 128<<20)
	r := newHoleReader(openWatched(t, path))
	buffer := make([]byte, 256<<10)
	var read int64
	for {
		n, _, err := r.next(buffer)
		read += int64(n)
		if read == 32<<20 {
			if err := os.Truncate(path, 63<<20); err != nil {
				t.Fatal(err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if read != 63<<20 {
		t.Errorf("%d bytes of %d", read, 63<<20)
	}
}
