// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// uploadChunk is what libvirt's own client sends at a time.
	uploadChunk = 256 << 10
	// uploadBuffers lets one chunk be read while another is being sent.
	uploadBuffers = 2
	// holeBlock is the least that is left out where it holds nothing but zeros.
	holeBlock = 64 << 10
)

// uploader sends one stream, chunk by chunk.
type uploader struct {
	g      *guard
	header header
	stream *stream
	sparse bool
	free   chan []byte
	hole   uint64 // bytes of zeros that were read, and that the daemon has not been told of
}

func newUploader(g *guard, s *stream, sparse bool) *uploader {
	u := &uploader{
		g: g, stream: s, sparse: sparse, free: make(chan []byte, uploadBuffers),
		header: header{program: programRemote, version: protocolVersion, procedure: procStorageVolUpload, kind: typeStream, serial: s.serial},
	}
	for range uploadBuffers {
		u.free <- make([]byte, headerLen+uploadChunk)
	}
	return u
}

// send sends length bytes of r and the stream's end.
func (u *uploader) send(r io.Reader, length uint64) error {
	for left := length; left > 0; {
		var buffer []byte
		select {
		case buffer = <-u.free:
		case <-u.g.dead:
			return errSendingEnded
		}
		n := min(left, uploadChunk)
		if _, err := io.ReadFull(r, buffer[headerLen:headerLen+n]); err != nil {
			return shortSource(err, length)
		}
		left -= n
		if !u.sendChunk(buffer, int(n), left == 0) {
			return errSendingEnded
		}
	}
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

// sendChunk sends the n bytes behind the header's place in a buffer, which goes back to the free ones; last says that the upload ends with them. It
// returns false when the connection is dead.
func (u *uploader) sendChunk(buffer []byte, n int, last bool) bool {
	extents := []extent{{0, n}}
	if u.sparse {
		extents = extentsOf(buffer[headerLen:headerLen+n], last)
	}
	at := 0
	for i, e := range extents {
		u.hole += uint64(e.start - at)
		at = e.end
		if !u.sendHole() {
			return false
		}
		// Before an extent that is not the first lie zeros that are not sent: the header has room there.
		o := outgoing{frame: buffer[e.start : headerLen+e.end]}
		h := u.header
		h.length, h.status = uint32(len(o.frame)), statusContinue
		h.put(o.frame)
		if i == len(extents)-1 {
			o.buffer, o.sent = buffer, u.free
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

// extentsOf are the parts of a chunk that are to be sent: its blocks but those that hold nothing but zeros. The last block of an upload is sent whatever
// it holds, so that the file has its length, and something of it is on the disk.
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
