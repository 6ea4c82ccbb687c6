// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// uploadChunk bytes are sent at a time, or left out where they are zeros. The daemon makes and gives back two buffers of this length for each: of 128 KiB
	// and more, its C library would have the kernel map and clear each anew, which takes it longer than all else.
	uploadChunk = 64 << 10
	// uploadBuffers lets the next chunks be read while one is being sent.
	uploadBuffers = 4
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
		u.free <- make([]byte, headerLen+uploadChunk)
	}
	return u
}

// send sends length bytes of r and the stream's end.
func (u *uploader) send(r io.Reader, length uint64) error {
	if !u.pacer.start() {
		return errSendingEnded
	}
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
		// The last chunk is sent whatever it holds, so that the file has its length, and something of it is on the disk.
		if u.sparse && left > 0 && isZero(buffer[headerLen:headerLen+n]) {
			u.hole += n
			u.free <- buffer // there is room: it came from there
			continue
		}
		if !u.sendHole() || !u.sendChunk(buffer, int(n)) {
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

// sendChunk sends the n bytes behind the header's place in a buffer, which goes back to the free ones. It returns false when the connection is dead.
func (u *uploader) sendChunk(buffer []byte, n int) bool {
	o := outgoing{frame: buffer[:headerLen+n], sent: u.free}
	h := u.header
	h.length, h.status = uint32(len(o.frame)), statusContinue
	h.put(o.frame)
	return u.pacer.wait() && u.g.send(o) && u.pacer.sent(n)
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

var zeros [uploadChunk]byte

func isZero(chunk []byte) bool { return bytes.Equal(chunk, zeros[:len(chunk)]) }

func shortSource(err error, length uint64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("fewer than the %d bytes announced: %w", length, io.ErrUnexpectedEOF)
	}
	return err
}
