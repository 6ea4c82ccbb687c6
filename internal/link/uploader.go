// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// uploadChunk bytes of an upload are read and sent at a time.
	uploadChunk = 256 << 10
	// uploadBuffers lets the next chunks be read while one is being sent.
	uploadBuffers = 3
	// holeBlock is the least that is left out where it holds nothing but zeros.
	holeBlock = 64 << 10
	// openingChunk is sent first, whatever it holds, where the upload has openingFrom bytes or more. For each message the daemon makes and gives back two
	// buffers of its length. Its C library has the kernel map and clear each of them anew, which takes it longer than all else, until it has given
	// back a longer one.
	openingChunk = 1 << 20
	openingFrom  = 16 << 20
)

// uploader sends one stream, chunk by chunk.
type uploader struct {
	g      *guard
	pacer  *pacer
	header header
	stream *stream
	sparse bool
	free   chan []byte
	hole   uint64 // bytes of zeros that were read, and that the daemon has not been told of
}

func newUploader(g *guard, s *stream, sparse bool) *uploader {
	u := &uploader{
		g: g, pacer: newPacer(g), stream: s, sparse: sparse, free: make(chan []byte, uploadBuffers),
		header: header{program: programRemote, version: protocolVersion, procedure: procStorageVolUpload, kind: typeStream, serial: s.serial},
	}
	for range uploadBuffers {
		u.free <- newUploadBuffer(uploadChunk)
	}
	return u
}

// newUploadBuffer has room for a chunk, its header, and a ping behind it.
func newUploadBuffer(chunk int) []byte { return make([]byte, headerLen+chunk+headerLen) }

// send sends length bytes of r and the stream's end.
func (u *uploader) send(r io.Reader, length uint64) error {
	if !u.pacer.start() {
		return errSendingEnded
	}
	for left := length; left > 0; {
		opening := left == length && length >= openingFrom
		buffer := u.next(opening)
		if buffer == nil {
			return errSendingEnded
		}
		n := int(min(left, uint64(len(buffer)-2*headerLen)))
		chunk := buffer[headerLen : headerLen+n]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return shortSource(err, length)
		}
		left -= uint64(n)
		extents := []extent{{0, n}}
		if u.sparse && !opening {
			extents = extentsOf(chunk, left == 0)
		}
		if !u.sendChunk(buffer, n, extents) {
			return errSendingEnded
		}
	}
	return u.end(r, length)
}

// next is a buffer for the next chunk; nil when the connection is dead.
func (u *uploader) next(opening bool) []byte {
	if opening {
		return newUploadBuffer(openingChunk)
	}
	select {
	case buffer := <-u.free:
		return buffer
	case <-u.g.dead:
		return nil
	}
}

// end sends the stream's end, where r has ended too.
func (u *uploader) end(r io.Reader, length uint64) error {
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 {
		return fmt.Errorf("more than the %d bytes announced", length)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	h := u.header
	h.status = statusOK
	u.stream.finished.Store(true)
	if !u.g.send(outgoing{frame: h.frame(nil)}) {
		return errSendingEnded
	}
	return nil
}

// sendChunk sends the extents of a chunk of n bytes, which lies in its buffer behind the header's place. It returns false when the connection is dead.
func (u *uploader) sendChunk(buffer []byte, n int, extents []extent) bool {
	at := 0
	for i, e := range extents {
		u.hole += uint64(e.start - at)
		at = e.end
		if !u.pacer.wait() || !u.sendHole() {
			return false
		}
		// Before an extent that is not the first lie zeros that are not sent: the header has room there.
		o := outgoing{frame: buffer[e.start : headerLen+e.end]}
		h := u.header
		h.length, h.status = uint32(len(o.frame)), statusContinue
		h.put(o.frame)
		if i == len(extents)-1 {
			if n <= uploadChunk { // and not the opening one
				o.buffer, o.sent = buffer, u.free
			}
			// The ping goes into the same packet, behind the chunk: there is nothing else in its buffer.
			if o.pong = u.pacer.sends(e.end - e.start); o.pong != nil {
				o.frame = append(o.frame, keepaliveFrame(procPing)...)
			}
		} else {
			u.pacer.counts(e.end - e.start)
		}
		if !u.g.send(o) {
			return false
		}
	}
	u.hole += uint64(n - at)
	if len(extents) == 0 {
		u.free <- buffer // there is room: it came from there
	}
	return true
}

// sendHole tells of the zeros that were left out; it returns false when the connection is dead.
func (u *uploader) sendHole() bool {
	if u.hole == 0 {
		return true
	}
	h := u.header
	h.kind, h.status = typeStreamHole, statusContinue
	payload := holeArgs(u.hole)
	u.hole = 0
	return u.g.send(outgoing{frame: h.frame(payload)})
}

// extent is a part of a chunk, from start to before end.
type extent struct{ start, end int }

var zeros [holeBlock]byte

// extentsOf are the parts of a chunk that are to be sent: its blocks but those that hold nothing but zeros. The last block of an upload is sent
// whatever it holds, so that the file has its length, and something of it is on the disk.
func extentsOf(chunk []byte, last bool) (extents []extent) {
	for start := 0; start < len(chunk); start += holeBlock {
		end := min(start+holeBlock, len(chunk))
		if bytes.Equal(chunk[start:end], zeros[:end-start]) && (!last || end < len(chunk)) {
			continue
		}
		if n := len(extents); n > 0 && extents[n-1].end == start {
			extents[n-1].end = end
			continue
		}
		extents = append(extents, extent{start, end})
	}
	return extents
}

func shortSource(err error, length uint64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("fewer than the %d bytes announced: %w", length, io.ErrUnexpectedEOF)
	}
	return err
}
