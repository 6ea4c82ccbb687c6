// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"math"
)

// HeaderBytes at the start of an image are enough to Inspect it.
const HeaderBytes = 64 << 10

// Format of a disk image.
type Format string

// Formats.
const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw"
)

// Info is what an image says of itself.
type Info struct {
	Format Format
	// VirtualSize of the disk in bytes. A raw image does not say: Inspect leaves 0, and Fetch fills in its length.
	VirtualSize int64
}

// Features that a reader must know (qcow2 specification, "incompatible features").
const (
	featureDirty        = 1 << 0
	featureCorrupt      = 1 << 1
	featureDataFile     = 1 << 2
	featureCompression  = 1 << 3
	featureExtendedL2   = 1 << 4
	featuresKnown       = featureDirty | featureCorrupt | featureDataFile | featureCompression | featureExtendedL2
	extensionEnd        = 0
	extensionDataFile   = 0x44415441
	extensionBackingFmt = 0xe2792aca

	qcow2HeaderV2 = 72
	qcow2HeaderV3 = 104
)

var qcow2Magic = []byte("QFI\xfb")

// foreign are contents that are no disk image that a guest could boot as it is, by how they start.
var foreign = []struct{ start, what, next string }{
	{"\x1f\x8b", "packed twice, with gzip", "pack it once"},
	{"\xfd7zXZ\x00", "packed twice, with xz", "pack it once"},
	{"\x28\xb5\x2f\xfd", "packed twice, with zstd", "pack it once"},
	{"BZh", "packed with bzip2", "pack it with xz, gzip or zstd, or publish it unpacked"},
	{"PK\x03\x04", "a zip archive", "pack it with xz, gzip or zstd, or publish it unpacked"},
	{"KDMV", "a VMDK image", "convert it with qemu-img convert -O qcow2"},
	{"# Disk DescriptorFile", "a VMDK descriptor", "convert it with qemu-img convert -O qcow2"},
	{"vhdxfile", "a VHDX image", "convert it with qemu-img convert -O qcow2"},
	{"conectix", "a VHD image", "convert it with qemu-img convert -O qcow2"},
	{"<<< ", "a VDI image", "convert it with qemu-img convert -O qcow2"},
	{"QED\x00", "a QED image", "convert it with qemu-img convert -O qcow2"},
	{"<!DOCTYPE", "a web page", "check what the URL serves"},
	{"<!doctype", "a web page", "check what the URL serves"},
	{"<html", "a web page", "check what the URL serves"},
	{"<?xml", "an XML document", "check what the URL serves"},
}

// Inspect reads the format from an image's first bytes: HeaderBytes of them, or the whole image where it is shorter. Permanent errors say what
// no host may be given: an image that names other files (a way to read the host's own), is encrypted, damaged, or not an image.
func Inspect(header []byte) (Info, error) {
	if bytes.HasPrefix(header, qcow2Magic) {
		return inspectQCOW2(header)
	}
	for _, f := range foreign {
		if bytes.HasPrefix(header, []byte(f.start)) {
			return Info{}, permanent(f.next, "the content is %s, neither qcow2 nor a raw disk", f.what)
		}
	}
	if len(header) < 512 {
		return Info{}, permanent("check what the URL serves", "the content has %d bytes: less than a disk's first sector", len(header))
	}
	return Info{Format: Raw}, nil
}

func inspectQCOW2(header []byte) (Info, error) {
	if len(header) < qcow2HeaderV2 {
		return Info{}, permanent("check what the URL serves", "the qcow2 header is cut off after %d bytes", len(header))
	}
	be := binary.BigEndian
	version, backingOffset, backingSize := be.Uint32(header[4:]), be.Uint64(header[8:]), be.Uint32(header[16:])
	clusterBits, size, encryption := be.Uint32(header[20:]), be.Uint64(header[24:]), be.Uint32(header[32:])
	switch {
	case version != 2 && version != 3:
		return Info{}, permanent("convert it with qemu-img convert -O qcow2", "qcow2 version %d is not supported (2 and 3 are)", version)
	case backingOffset != 0 || backingSize != 0:
		return Info{}, permanent("flatten it with qemu-img convert -O qcow2", "the qcow2 image names a backing file: it would make the host read a file of its own")
	case encryption != 0:
		return Info{}, permanent("publish it unencrypted", "the qcow2 image is encrypted (method %d)", encryption)
	case clusterBits < 9 || clusterBits > 21:
		return Info{}, permanent("check what the URL serves", "the qcow2 image is damaged: cluster size 2^%d", clusterBits)
	case size == 0 || size > math.MaxInt64:
		return Info{}, permanent("check what the URL serves", "the qcow2 image is damaged: virtual size %d", size)
	}
	extensions := qcow2HeaderV2
	if version == 3 {
		length, err := inspectVersion3(header, 1<<clusterBits)
		if err != nil {
			return Info{}, err
		}
		extensions = length
	}
	if err := inspectExtensions(header[min(extensions, len(header)):]); err != nil {
		return Info{}, err
	}
	return Info{Format: QCOW2, VirtualSize: int64(size)}, nil
}

// inspectVersion3 returns the header's length, in bytes.
func inspectVersion3(header []byte, cluster uint32) (int, error) {
	if len(header) < qcow2HeaderV3 {
		return 0, permanent("check what the URL serves", "the qcow2 header is cut off after %d bytes", len(header))
	}
	features, length := binary.BigEndian.Uint64(header[72:]), binary.BigEndian.Uint32(header[100:])
	switch {
	case features&featureDataFile != 0:
		return 0, dataFileError()
	case features&featureCorrupt != 0:
		return 0, permanent("repair it with qemu-img check -r all", "the qcow2 image is marked as corrupt")
	case features&^featuresKnown != 0:
		return 0, permanent("convert it with an older qemu-img", "the qcow2 image needs features that are not known here (bits %#x)", features&^featuresKnown)
	case length < qcow2HeaderV3 || length > cluster || length%8 != 0:
		return 0, permanent("check what the URL serves", "the qcow2 image is damaged: header of %d bytes", length)
	}
	return int(length), nil
}

// inspectExtensions walks the header's extensions for those that name other files, whatever the feature bits say.
func inspectExtensions(rest []byte) error {
	for len(rest) >= 8 {
		kind, length := binary.BigEndian.Uint32(rest), uint64(binary.BigEndian.Uint32(rest[4:]))
		switch kind {
		case extensionEnd:
			return nil
		case extensionDataFile:
			return dataFileError()
		case extensionBackingFmt:
			return permanent("flatten it with qemu-img convert -O qcow2", "the qcow2 image names a backing format, and so was made to have a backing file")
		}
		padded := 8 + (length+7)/8*8
		if padded > uint64(len(rest)) {
			return permanent("check what the URL serves", "the qcow2 image is damaged: a header extension of %d bytes", length)
		}
		rest = rest[padded:]
	}
	return nil
}

func dataFileError() error {
	return permanent("convert it with qemu-img convert -O qcow2", "the qcow2 image keeps its data in another file: it would make the host read a file of its own")
}
