// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"

	"github.com/digitalocean/go-libvirt"
)

// A frame is a length, which counts itself, a header and a payload.
const (
	headerLen = 28
	maxFrame  = 33_554_432 + 4
)

const (
	programRemote    = 0x20008086
	programQEMU      = 0x20008087
	programLXC       = 0x20008088
	programKeepalive = 0x6b656570

	protocolVersion = 1
)

const (
	typeCall       = 0
	typeReply      = 1
	typeMessage    = 2
	typeStream     = 3
	typeStreamHole = 6
)

const (
	statusOK       = 0
	statusError    = 1
	statusContinue = 2
)

const (
	procConnectOpen      = 1
	procStorageVolUpload = 208
	procOpenConsole      = 201

	procPing = 1
	procPong = 2
)

// streamProcedures are the calls of the remote program after which data flows. The
// library's streams can deadlock (an answer after its reader left blocks every other
// call), so it may not start any.
var streamProcedures = map[uint32]string{
	148: "DomainMigratePrepareTunnel",
	201: "DomainOpenConsole",
	208: "StorageVolUpload",
	209: "StorageVolDownload",
	211: "DomainScreenshot",
	215: "DomainMigratePrepareTunnel3",
	296: "DomainOpenChannel",
}

type header struct {
	length    uint32
	program   uint32
	version   uint32
	procedure uint32
	kind      uint32
	serial    uint32
	status    uint32
}

func parseHeader(b []byte) header {
	u := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	return header{u(0), u(1), u(2), u(3), u(4), u(5), u(6)}
}

// put writes the header to b[:headerLen].
func (h header) put(b []byte) {
	for i, v := range []uint32{h.length, h.program, h.version, h.procedure, h.kind, h.serial, h.status} {
		binary.BigEndian.PutUint32(b[4*i:], v)
	}
}

// frame returns the header with its payload behind it, and the length set.
func (h header) frame(payload []byte) []byte {
	b := make([]byte, headerLen+len(payload))
	h.length = uint32(len(b))
	h.put(b)
	copy(b[headerLen:], payload)
	return b
}

// check returns an error when no libvirt daemon could have sent this header.
func (h header) check() error {
	if h.program == programKeepalive {
		return nil // of other versions than ours nothing is asked, nor taken
	}
	switch h.program {
	case programRemote, programQEMU, programLXC:
	default:
		return notLibvirt("a frame of program %#x", h.program)
	}
	if h.version != protocolVersion {
		return notLibvirt("a frame of protocol version %d", h.version)
	}
	switch h.kind {
	case typeReply, typeMessage, typeStream, typeStreamHole:
	default:
		return notLibvirt("a frame of type %d from the server", h.kind)
	}
	if h.status > statusContinue || (h.kind == typeReply && h.status == statusContinue) {
		return notLibvirt("status %d in a frame of type %d", h.status, h.kind)
	}
	return nil
}

func checkLength(n uint32) error {
	if n < headerLen || n > maxFrame {
		return notLibvirt("a frame of %d bytes, where %d to %d are possible", n, headerLen, maxFrame)
	}
	return nil
}

func keepaliveFrame(procedure uint32) []byte {
	return header{program: programKeepalive, version: protocolVersion, procedure: procedure, kind: typeMessage}.frame(nil)
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	b = append(b, s...)
	return append(b, make([]byte, (4-len(s)%4)%4)...)
}

// flagSparseStream announces that an upload may contain holes.
const flagSparseStream = 1

// uploadArgs encodes remote_storage_vol_upload_args, with offset 0.
func uploadArgs(vol libvirt.StorageVol, length uint64, flags uint32) []byte {
	b := appendString(nil, vol.Pool)
	b = appendString(b, vol.Name)
	b = appendString(b, vol.Key)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint64(b, length)
	return binary.BigEndian.AppendUint32(b, flags)
}

// holeArgs encodes virNetStreamHole: its length in bytes, and no flags.
func holeArgs(length uint64) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, length), 0)
}

// decodeError reads a remote_error: code, domain, and the message if there is one.
func decodeError(payload []byte) error {
	malformed := errors.New("the daemon refused, with an error that cannot be read")
	if len(payload) < 12 {
		return malformed
	}
	code := binary.BigEndian.Uint32(payload)
	if binary.BigEndian.Uint32(payload[8:]) == 0 {
		return libvirt.Error{Code: code, Message: "no message"}
	}
	rest := payload[12:]
	if len(rest) < 4 {
		return malformed
	}
	n := binary.BigEndian.Uint32(rest)
	if uint64(n) > uint64(len(rest)-4) {
		return malformed
	}
	return libvirt.Error{Code: code, Message: string(rest[4 : 4+n])}
}
