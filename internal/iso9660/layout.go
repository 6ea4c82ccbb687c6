// SPDX-License-Identifier: Apache-2.0

package iso9660

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"strings"
)

// Where things stand, in sectors: 16 of system area (zeros), descriptors, path tables, then the directory, its extension record, and the files.
const (
	descriptorSector     = 16
	pathTableLSector     = 18
	pathTableMSector     = 19
	firstDirectorySector = 20

	pathTableLength = 10
	recordBase      = 33 // a directory record without its identifier
	directoryMode   = 0o040555
	regularMode     = 0o100000
	flagDirectory   = 2
	selfIdentifier  = "\x00"
	upIdentifier    = "\x01"
)

// The date of everything, 1 January 1980 UTC, so that equal content gives equal bytes.
const longDate = "1980010100000000\x00"

var shortDate = []byte{80, 1, 1, 0, 0, 0, 0}

// The extension record that announces Rock Ridge; the texts are those of the Rock Ridge specification (RRIP 1.10).
const (
	rockRidgeID          = "RRIP_1991A"
	rockRidgeDescription = "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS"
	rockRidgeSource      = "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION."
)

// writeHead writes everything that stands before the files' data.
func writeHead(out *bytes.Buffer, label string, files []placed, directory, total uint32) {
	out.Write(make([]byte, descriptorSector*SectorSize))
	writePrimaryDescriptor(out, label, directory, total)
	sector(out, []byte("\xffCD001\x01"))
	sector(out, pathTable(binary.LittleEndian))
	sector(out, pathTable(binary.BigEndian))

	room := SectorSize
	for _, record := range directoryRecords(files, directory) {
		if len(record) > room { // a record must not cross a sector's end
			out.Write(padding[:room])
			room = SectorSize
		}
		out.Write(record)
		room -= len(record)
	}
	out.Write(padding[:room])
	sector(out, extensionRecord())
}

func directorySectors(files []placed) int {
	count, room := 1, SectorSize
	for _, record := range directoryRecords(files, 0) {
		if len(record) > room {
			count, room = count+1, SectorSize
		}
		room -= len(record)
	}
	return count
}

func directoryRecords(files []placed, directory uint32) [][]byte {
	length := directory * SectorSize
	extension := firstDirectorySector + directory
	announce := join(
		[]byte("SP\x07\x01\xbe\xef\x00"),
		rockRidge(posix(directoryMode, 2)),
		[]byte("CE\x1c\x01"), both32(extension), both32(0), both32(uint32(len(extensionRecord()))),
	)
	records := [][]byte{
		record(selfIdentifier, flagDirectory, firstDirectorySector, length, announce),
		record(upIdentifier, flagDirectory, firstDirectorySector, length, rockRidge(posix(directoryMode, 2))),
	}
	for _, f := range files {
		records = append(records, record(f.identifier, 0, f.sector, uint32(len(f.Data)), rockRidge(trueName(f.Name), posix(regularMode|f.Mode, 1))))
	}
	return records
}

// record is one directory record of ECMA-119 9.1, with its system use area.
func record(identifier string, flags byte, extent, length uint32, use []byte) []byte {
	size := recordBase + len(identifier)
	size += size % 2
	body := join([]byte{byte(size + len(use) + len(use)%2), 0}, both32(extent), both32(length), shortDate,
		[]byte{flags, 0, 0}, both16(1), []byte{byte(len(identifier))}, []byte(identifier))
	body = append(body, make([]byte, size-len(body))...)
	body = append(body, use...)
	return append(body, make([]byte, len(use)%2)...)
}

// rockRidge says which Rock Ridge entries follow, as its older readers expect, and holds them.
func rockRidge(entries ...[]byte) []byte {
	bits := map[string]byte{"PX": 1, "NM": 8}
	var present byte
	for _, entry := range entries {
		present |= bits[string(entry[:2])]
	}
	return append([]byte{'R', 'R', 5, 1, present}, join(entries...)...)
}

func posix(mode fs.FileMode, links uint32) []byte {
	return join([]byte("PX\x24\x01"), both32(uint32(mode)), both32(links), both32(0), both32(0))
}

func trueName(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

func extensionRecord() []byte {
	length := 8 + len(rockRidgeID) + len(rockRidgeDescription) + len(rockRidgeSource)
	head := []byte{'E', 'R', byte(length), 1, byte(len(rockRidgeID)), byte(len(rockRidgeDescription)), byte(len(rockRidgeSource)), 1}
	return append(head, rockRidgeID+rockRidgeDescription+rockRidgeSource...)
}

// pathTable has one row, the root directory.
func pathTable(order binary.AppendByteOrder) []byte {
	row := order.AppendUint32([]byte{1, 0}, firstDirectorySector)
	return append(order.AppendUint16(row, 1), 0, 0)
}

// writePrimaryDescriptor follows ECMA-119 8.4, field by field.
func writePrimaryDescriptor(out *bytes.Buffer, label string, directory, total uint32) {
	sector(out, join(
		[]byte("\x01CD001\x01\x00"),
		text("", 32), text(label, 32),
		make([]byte, 8), both32(total), make([]byte, 32),
		both16(1), both16(1), both16(SectorSize), both32(pathTableLength),
		binary.LittleEndian.AppendUint32(nil, pathTableLSector), make([]byte, 4),
		binary.BigEndian.AppendUint32(nil, pathTableMSector), make([]byte, 4),
		record(selfIdentifier, flagDirectory, firstDirectorySector, directory*SectorSize, nil),
		text("", 128), text("", 128), text("", 128), text("", 128), // volume set, publisher, preparer, application
		text("", 37), text("", 37), text("", 37), // copyright, abstract, bibliography
		[]byte(longDate+longDate), []byte(strings.Repeat("0", 16)+"\x00"), []byte(longDate),
		[]byte{1},
	))
}

func sector(out *bytes.Buffer, content []byte) {
	out.Write(content)
	out.Write(padding[:pad(len(content))])
}

func text(s string, width int) []byte { return []byte(s + strings.Repeat(" ", width-len(s))) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// both32 is a number in both byte orders, as the standard wants it.
func both32(n uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, n), n)
}

func both16(n uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, n), n)
}
