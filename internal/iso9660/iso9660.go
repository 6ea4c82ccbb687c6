// SPDX-License-Identifier: Apache-2.0

// Package iso9660 makes small ISO 9660 volumes in memory: one flat directory with Rock Ridge names and modes, as Linux mounts them.
//
// The same input gives the same bytes: every date is fixed. No file and no temporary directory is used. The Go libraries at hand do not
// fit: kdomanski/iso9660 writes no Rock Ridge, and diskfs/go-diskfs writes it only from a directory on disk, with the time of day in it.
package iso9660

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"
)

// SectorSize in bytes: a volume's size is a multiple of it.
const SectorSize = 2048

// MaxFiles in one volume.
const MaxFiles = 256

// File is one file of the volume.
type File struct {
	// Name is 1 to 30 letters, digits, dots, dashes and underscores, and starts with a letter or a digit.
	Name string
	// Mode holds permission bits only.
	Mode fs.FileMode
	// Data is kept by reference: it must not change while the volume is read.
	Data []byte
}

// Image is a volume that is put together while it is read; the files' data is never copied as a whole. It may be read many times, and by
// many goroutines at once.
type Image struct {
	head  []byte
	files []placed
	size  int64
}

// placed is a file with its place in the volume.
type placed struct {
	File
	identifier string // by which ISO 9660 knows it
	sector     uint32
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	padding      [SectorSize]byte
)

// New plans a volume. The label is 1 to 32 letters, digits, dashes and underscores. Errors name the label or the file that cannot be.
func New(label string, files []File) (*Image, error) {
	if !labelPattern.MatchString(label) {
		return nil, fmt.Errorf("volume label %q: must be 1 to 32 letters, digits, dashes and underscores", label)
	}
	all, err := place(files)
	if err != nil {
		return nil, err
	}
	directory := directorySectors(all)
	next := firstDirectorySector + directory + 1 // the sector after the directory holds the extension record
	for i := range all {
		if need := sectors(len(all[i].Data)); next > math.MaxUint32/SectorSize-need {
			return nil, fmt.Errorf("file %q: the volume would exceed 4 GiB", all[i].Name)
		}
		all[i].sector = uint32(next)
		next += sectors(len(all[i].Data))
	}
	head := &bytes.Buffer{}
	writeHead(head, label, all, uint32(directory), uint32(next))
	return &Image{head: head.Bytes(), files: all, size: int64(next) * SectorSize}, nil
}

// Write is the volume as one slice, for small volumes.
func Write(label string, files []File) ([]byte, error) {
	image, err := New(label, files)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, image.Size())
	for _, part := range image.parts() {
		out = append(out, part...)
	}
	return out, nil
}

// Size of the volume in bytes.
func (i *Image) Size() int64 { return i.size }

// Reader reads the whole volume, from its start.
func (i *Image) Reader() io.Reader {
	var readers []io.Reader
	for _, part := range i.parts() {
		readers = append(readers, bytes.NewReader(part))
	}
	return io.MultiReader(readers...)
}

func (i *Image) parts() [][]byte {
	parts := [][]byte{i.head}
	for _, f := range i.files {
		parts = append(parts, f.Data, padding[:pad(len(f.Data))])
	}
	return parts
}

// place checks the files and sorts them as the directory must be sorted.
func place(files []File) ([]placed, error) {
	if len(files) > MaxFiles {
		return nil, fmt.Errorf("%d files: at most %d fit", len(files), MaxFiles)
	}
	all := make([]placed, 0, len(files))
	seen := map[string]string{}
	for _, f := range files {
		if !namePattern.MatchString(f.Name) {
			return nil, fmt.Errorf("file name %q: must be 1 to 30 letters, digits, dots, dashes and underscores, and start with a letter or digit", f.Name)
		}
		if f.Mode != f.Mode.Perm() {
			return nil, fmt.Errorf("file %q: mode %v: only permission bits can be kept", f.Name, f.Mode)
		}
		id := identifier(f.Name)
		if other, taken := seen[id]; taken {
			return nil, fmt.Errorf("file names %q and %q are the same to ISO 9660: rename one", other, f.Name)
		}
		seen[id] = f.Name
		all = append(all, placed{File: f, identifier: id})
	}
	slices.SortFunc(all, func(a, b placed) int {
		aName, aExt, _ := strings.Cut(a.identifier, ".")
		bName, bExt, _ := strings.Cut(b.identifier, ".")
		return strings.Compare(aName+" "+aExt, bName+" "+bExt)
	})
	return all, nil
}

// identifier is the name as plain ISO 9660 level 2 has it: upper case, one dot, a version. Linux shows the Rock Ridge name instead.
func identifier(name string) string {
	upper := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
	base, extension := upper, ""
	if dot := strings.LastIndexByte(upper, '.'); dot >= 0 {
		base, extension = upper[:dot], upper[dot+1:]
	}
	return strings.ReplaceAll(base, ".", "_") + "." + extension + ";1"
}

func sectors(length int) int { return (length + SectorSize - 1) / SectorSize }

func pad(length int) int { return sectors(length)*SectorSize - length }
