// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"

	"github.com/digitalocean/go-libvirt"
)

// MaxPut is how many bytes Put takes at most.
const MaxPut = uploadChunk

// Put writes 1 to MaxPut bytes to the start of vol. It is a call like others, in one message with its end behind it: nothing of it can stall, so it needs
// no link of its own, as an Upload does, and leaves the link alive when the daemon refuses. Its errors are those of Call. Where it ended with ctx, the
// volume may have the content all the same.
func (l *Link) Put(ctx context.Context, vol libvirt.StorageVol, content []byte) error {
	if len(content) < 1 || len(content) > MaxPut {
		return fmt.Errorf("%d bytes for volume %s: 1 to %d can be put into one at once", len(content), vol.Name, MaxPut)
	}
	_, err := Call(ctx, l, func(*libvirt.Libvirt) (struct{}, error) { return struct{}{}, l.put(ctx, vol, content) })
	return err
}

func (l *Link) put(ctx context.Context, vol libvirt.StorageVol, content []byte) error {
	s, err := l.guard.startCall(procStorageVolUpload, uploadArgs(vol, uint64(len(content)), 0))
	if err != nil {
		return err
	}
	if err := l.word(s); err != nil {
		return err
	}
	if ctx.Err() != nil { // the caller may have made the volume anew meanwhile
		l.guard.endStream(s, procStorageVolUpload, statusError)
		return ctx.Err()
	}
	h := header{program: programRemote, version: protocolVersion, procedure: procStorageVolUpload, kind: typeStream, serial: s.serial, status: statusContinue}
	if !l.guard.send(outgoing{frame: h.frame(content)}) {
		return l.lastWord(s)
	}
	h.status = statusOK
	if !l.guard.send(outgoing{frame: h.frame(nil)}) {
		return l.lastWord(s)
	}
	return l.word(s)
}

// word waits for what the daemon says next on s.
func (l *Link) word(s *stream) error {
	select {
	case frame := <-s.answers:
		return refusal(frame)
	case <-l.guard.dead:
		return l.lastWord(s)
	}
}
