// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func TestPut(t *testing.T) {
	volume := libvirt.StorageVol{Name: "v"}
	for _, size := range []int{1, MaxPut} {
		content := make([]byte, size)
		rand.Read(content)
		var got bytes.Buffer
		l := mustPipe(t, Target{}, store(&got))
		if err := l.Put(t.Context(), volume, content); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%d bytes arrived of %d, or others", got.Len(), size)
		}
	}
	l := mustPipe(t, Target{}, &linktest.Peer{})
	for _, size := range []int{0, MaxPut + 1} {
		if err := l.Put(t.Context(), volume, make([]byte, size)); err == nil {
			t.Errorf("%d bytes were put", size)
		}
	}
}

func TestPutRefused(t *testing.T) {
	for name, peer := range map[string]*linktest.Peer{
		"at once": {OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
			if f.Procedure == linktest.StorageVolUpload {
				c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrNoStorageVol), "gone")))
			}
			return f.Procedure == linktest.StorageVolUpload
		}},
		"when all was sent": {OnStream: func(c *linktest.PeerConn, f linktest.Frame) {
			if f.Status == linktest.OK {
				f.Status, f.Payload = linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrNoStorageVol), "gone")
				c.Send(f)
			}
		}},
	} {
		t.Run("a refusal "+name+" leaves the link alive", func(t *testing.T) {
			l := mustPipe(t, Target{}, peer)
			if err := l.Put(t.Context(), libvirt.StorageVol{Name: "v"}, []byte("abc")); !hasCode(err, libvirt.ErrNoStorageVol) {
				t.Errorf("got %v", err)
			}
			mustWork(t, l)
		})
	}
}

func TestPutEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The daemon agrees to the upload after its caller has gone: then nothing may be written any more.
		var sent []linktest.Frame
		peer := &linktest.Peer{
			OnCall: func(_ *linktest.PeerConn, f linktest.Frame) bool {
				if f.Procedure == linktest.StorageVolUpload {
					time.Sleep(2 * time.Second)
				}
				return false
			},
			OnStream: func(_ *linktest.PeerConn, f linktest.Frame) { sent = append(sent, f) },
		}
		l := mustPipe(t, Target{}, peer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Put(ctx, libvirt.StorageVol{Name: "v"}, []byte("abc")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(sent) != 1 || sent[0].Status != linktest.Error || len(sent[0].Payload) != 0 {
			t.Errorf("the daemon got %+v instead of the upload's end", sent)
		}
		mustWork(t, l)
	})
}
