// SPDX-License-Identifier: Apache-2.0

package linktest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Values of the fields of a Frame.
const (
	Remote    = 0x20008086
	Keepalive = 0x6b656570

	Call    = 0
	Reply   = 1
	Message = 2
	Stream  = 3
	Hole    = 6 // in a stream

	OK       = 0
	Error    = 1
	Continue = 2

	ConnectOpen      = 1
	ConnectClose     = 2
	AuthList         = 66
	GetLibVersion    = 157
	StorageVolUpload = 208
	OpenConsole      = 201
	RegisterEvent    = 316
	DeregisterEvent  = 317
	EventLifecycle   = 318
	EventAgent       = 348

	Ping = 1
	Pong = 2
)

// Frame is one frame of libvirt's RPC protocol.
type Frame struct {
	Program, Version, Procedure, Type, Serial, Status uint32
	Payload                                           []byte
}

const headerLen = 28

// Encode returns the frame as it is sent.
func (f Frame) Encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(headerLen+len(f.Payload)))
	for _, v := range []uint32{f.Program, f.Version, f.Procedure, f.Type, f.Serial, f.Status} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, f.Payload...)
}

// ReadFrame reads one frame from a peer that is trusted to send whole ones.
func ReadFrame(r io.Reader) (Frame, error) {
	var b [headerLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Frame{}, err
	}
	u := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	if u(0) < headerLen || u(0) > 64<<20 {
		return Frame{}, fmt.Errorf("frame of %d bytes", u(0))
	}
	f := Frame{u(1), u(2), u(3), u(4), u(5), u(6), make([]byte, u(0)-headerLen)}
	_, err := io.ReadFull(r, f.Payload)
	return f, err
}

// HoleLength is what a frame of type Hole says, in bytes.
func (f Frame) HoleLength() (uint64, error) {
	if len(f.Payload) != 8+4 || binary.BigEndian.Uint32(f.Payload[8:]) != 0 {
		return 0, fmt.Errorf("a hole of %x", f.Payload)
	}
	return binary.BigEndian.Uint64(f.Payload), nil
}

// SparseUpload says whether the call f, of StorageVolUpload, announces holes.
func (f Frame) SparseUpload() bool {
	return len(f.Payload) > 4 && binary.BigEndian.Uint32(f.Payload[len(f.Payload)-4:]) == 1
}

// Answer is a reply to the call f.
func (f Frame) Answer(status uint32, payload []byte) Frame {
	f.Type, f.Status, f.Payload = Reply, status, payload
	return f
}

// ErrorPayload is a remote_error with a code and a message.
func ErrorPayload(code uint32, message string) []byte {
	b := binary.BigEndian.AppendUint32(nil, code)
	b = binary.BigEndian.AppendUint32(b, 0) // domain
	b = binary.BigEndian.AppendUint32(b, 1) // there is a message
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = append(b, message...)
	b = append(b, make([]byte, (4-len(message)%4)%4)...)
	b = binary.BigEndian.AppendUint32(b, 2) // level
	return append(b, make([]byte, 32)...)   // no domain object, strings, numbers or network
}

// Domain encodes a domain as calls, answers and events carry it.
func Domain(name string, id int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	b = append(b, name...)
	b = append(b, make([]byte, (4-len(name)%4)%4+16)...) // padding, and a UUID of zeros
	return binary.BigEndian.AppendUint32(b, uint32(id))
}

// Event is a message about a domain, with two numbers behind it as the lifecycle's and the agent's have.
func Event(procedure uint32, domain string) Frame {
	payload := append(binary.BigEndian.AppendUint32(nil, 1), Domain(domain, 1)...)
	return Frame{Program: Remote, Version: 1, Procedure: procedure, Type: Message, Payload: append(payload, make([]byte, 8)...)}
}
