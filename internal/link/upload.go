// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/digitalocean/go-libvirt"
)

// stream is a call of our own with data behind it.
type stream struct {
	serial   uint32
	answers  chan []byte  // the reply, then the last word: as many as there is room for
	finished atomic.Bool  // all was sent, or is on its way
	data     func([]byte) // takes what the daemon sends, and must not block; nil where nothing is asked for
}

func (s *stream) answer(frame []byte) error {
	s.answers <- frame
	return nil
}

// Upload writes length bytes of r to the start of vol, which is a file; length is at
// least 1, and r must hold exactly as many. Where sparse is set, which libvirt 3.4 and
// later understand, long runs of zeros are not sent: they become holes of the file, and
// what it held from there on is gone. The last block is always written, and the first MiB
// of a long upload.
//
// It is meant for a link of its own (see Keeper.Dedicated): on any error the link is
// closed, before Upload returns. The error is a *SourceError when r failed, the
// daemon's libvirt.Error when it refused or broke off, a *DeadError when the link died,
// or wraps ctx's. Upload ends with ctx even where r blocks; r is then read no more once
// that Read returns, so r itself must end with ctx too.
func (l *Link) Upload(ctx context.Context, vol libvirt.StorageVol, r io.Reader, length uint64, sparse bool) error {
	if length == 0 {
		return errors.New("an upload of 0 bytes: libvirt takes that for an upload without a bound")
	}
	if err := l.acquire(ctx); err != nil {
		return err
	}
	s := &slot{link: l}
	defer s.free()
	err := l.upload(ctx, vol, r, length, sparse)
	if err != nil {
		l.kill(fmt.Errorf("an upload to volume %s failed: %w", vol.Name, err))
	}
	return err
}

func (l *Link) upload(ctx context.Context, vol libvirt.StorageVol, r io.Reader, length uint64, sparse bool) error {
	flags := uint32(0)
	if sparse {
		flags = flagSparseStream
	}
	s, err := l.guard.startCall(procStorageVolUpload, uploadArgs(vol, length, flags))
	if err != nil {
		return err
	}
	if err := l.await(ctx, s, nil); err != nil {
		return err
	}
	source := make(chan error, 1)
	go func() { source <- newUploader(l.guard, s, sparse).send(r, length) }()
	return l.await(ctx, s, source)
}

// await waits for the daemon's next word on s: an error as soon as it comes, and
// consent once all that source sends is there.
func (l *Link) await(ctx context.Context, s *stream, source <-chan error) error {
	for {
		select {
		case frame := <-s.answers:
			if h := parseHeader(frame); h.kind == typeStream && h.status == statusOK && !s.finished.Load() {
				return errors.New("the daemon ended the upload before all was sent")
			}
			return refusal(frame)
		case err := <-source:
			if err != nil {
				return l.sourceFailed(ctx, s, err)
			}
			source = nil
		case <-ctx.Done():
			return l.ended(ctx)
		case <-l.guard.dead:
			return l.lastWord(s)
		}
	}
}

// refusal is the daemon's error, if that is what the frame carries.
func refusal(frame []byte) error {
	if parseHeader(frame).status == statusError {
		return decodeError(frame[headerLen:])
	}
	return nil
}

// lastWord prefers what the daemon said before the connection ended: that is why.
func (l *Link) lastWord(s *stream) error {
	select {
	case frame := <-s.answers:
		if err := refusal(frame); err != nil {
			return err
		}
	default:
	}
	return l.Err()
}

func (l *Link) sourceFailed(ctx context.Context, s *stream, err error) error {
	if errors.Is(err, errSendingEnded) {
		return l.lastWord(s)
	}
	if ctx.Err() != nil {
		return l.ended(ctx)
	}
	return &SourceError{Err: err}
}

var errSendingEnded = errors.New("the connection ended")

// startCall sends a call of the remote program that the library takes no part in.
func (g *guard) startCall(procedure uint32, args []byte) (*stream, error) {
	return g.startStream(&stream{answers: make(chan []byte, 2)}, procedure, args)
}

// startStream is startCall for a stream that is prepared already.
func (g *guard) startStream(s *stream, procedure uint32, args []byte) (*stream, error) {
	g.mu.Lock()
	s.serial = g.serials
	g.serials++
	g.mu.Unlock()
	if err := g.expect(s.serial, call{program: programRemote, procedure: procedure, own: s}); err != nil {
		return nil, err
	}
	g.send(outgoing{frame: header{
		program: programRemote, version: protocolVersion, procedure: procedure,
		kind: typeCall, serial: s.serial, status: statusOK,
	}.frame(args)})
	return s, nil
}
