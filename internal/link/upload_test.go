// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// store is a peer that keeps what is uploaded, and agrees to its end.
func store(got *bytes.Buffer) *linktest.Peer {
	return &linktest.Peer{OnStream: func(c *linktest.PeerConn, f linktest.Frame) {
		got.Write(f.Payload)
		if f.Status == linktest.OK {
			c.Send(f)
		}
	}}
}

func upload(t *testing.T, l *Link, data []byte) error {
	t.Helper()
	return l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, bytes.NewReader(data), uint64(len(data)), false)
}

func TestUpload(t *testing.T) {
	for _, size := range []int{1, uploadChunk - 1, uploadChunk, 3*uploadChunk + 5} {
		data := make([]byte, size)
		rand.Read(data)
		var got bytes.Buffer
		h := startHost(t, store(&got), nil)
		l := mustDial(t, h.target)
		if err := upload(t, l, data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes arrived of %d, or others", got.Len(), size)
		}
		mustWork(t, l) // refresh and publication go over the same link
	}
}

func TestUploadArgs(t *testing.T) {
	got := string(uploadArgs(libvirt.StorageVol{Pool: "pool", Name: "name5", Key: ""}, 0x0102, flagSparseStream))
	want := "\x00\x00\x00\x04pool" + "\x00\x00\x00\x05name5\x00\x00\x00" + "\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x01\x02" + "\x00\x00\x00\x01"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// H2 in small; the row itself is shown on the real host.
func TestUploadFails(t *testing.T) {
	broken := errors.New("the mirror went away")
	var dead *DeadError
	var source *SourceError
	isSource := func(err error) bool { return errors.As(err, &source) }
	for name, c := range map[string]struct {
		peer   func(end <-chan struct{}) *linktest.Peer // nil: it takes all, and says nothing
		reader io.Reader
		length uint64
		is     func(error) bool
	}{
		"the reader fails": {
			reader: io.MultiReader(strings.NewReader("abc"), failing{broken}), length: 10,
			is: func(err error) bool { return isSource(err) && errors.Is(err, broken) },
		},
		"the reader is short": {
			reader: strings.NewReader("abc"), length: 10,
			is: func(err error) bool { return isSource(err) && errors.Is(err, io.ErrUnexpectedEOF) },
		},
		"the reader is long": {reader: strings.NewReader("abc"), length: 2, is: isSource},
		"the daemon refuses": {
			peer: func(_ <-chan struct{}) *linktest.Peer {
				return &linktest.Peer{OnCall: func(c *linktest.PeerConn, f linktest.Frame) bool {
					if f.Procedure == linktest.StorageVolUpload {
						c.Send(f.Answer(linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrNoStorageVol), "gone")))
					}
					return f.Procedure == linktest.StorageVolUpload
				}}
			},
			reader: endless{}, length: 1 << 40,
			is: func(err error) bool { return hasCode(err, libvirt.ErrNoStorageVol) },
		},
		"the daemon breaks off, and reads no more": {
			peer: func(end <-chan struct{}) *linktest.Peer {
				p := &linktest.Peer{}
				p.OnStream = func(c *linktest.PeerConn, f linktest.Frame) {
					f.Status, f.Payload = linktest.Error, linktest.ErrorPayload(uint32(libvirt.ErrSystemError), "No space left")
					c.Send(f)
					<-end
				}
				return p
			},
			reader: endless{}, length: 1 << 40,
			is: func(err error) bool { return hasCode(err, libvirt.ErrSystemError) },
		},
		"the daemon says that it is done, too early": {
			peer: func(_ <-chan struct{}) *linktest.Peer {
				return &linktest.Peer{OnStream: func(c *linktest.PeerConn, f linktest.Frame) {
					f.Status, f.Payload = linktest.OK, nil
					c.Send(f)
				}}
			},
			reader: endless{}, length: 1 << 40,
			is: func(err error) bool { return strings.Contains(err.Error(), "before all was sent") },
		},
		"the connection ends": {
			peer: func(_ <-chan struct{}) *linktest.Peer {
				return &linktest.Peer{OnStream: func(c *linktest.PeerConn, _ linktest.Frame) { c.Close() }}
			},
			reader: endless{}, length: 1 << 40,
			is: func(err error) bool { return errors.As(err, &dead) },
		},
		"nothing is announced": {
			reader: strings.NewReader(""), length: 0,
			is: func(err error) bool { return strings.Contains(err.Error(), "0 bytes") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			peer := &linktest.Peer{}
			if c.peer != nil {
				peer = c.peer(end)
			}
			l := mustPipe(t, Target{}, peer)
			t.Cleanup(func() { close(end) })
			if err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, c.reader, c.length, false); err == nil || !c.is(err) {
				t.Errorf("got %T %v", err, err)
			}
			if c.length > 0 && l.Err() == nil {
				t.Error("the link lives on")
			}
		})
	}
}

func hasCode(err error, code libvirt.ErrorNumber) bool {
	var answer libvirt.Error
	return errors.As(err, &answer) && answer.Code == uint32(code)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestUploadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{})
		ctx, cancel := context.WithCancel(t.Context())
		blocked, unblock := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- l.Upload(ctx, libvirt.StorageVol{Name: "v"}, blocked, 10, false) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		unblock.Close() // what a reader bound to ctx does by itself
	})
}

func TestKeepaliveDuringUpload(t *testing.T) {
	t.Run("X3: a ping is answered before the rest of an upload", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ping := linktest.Frame{Program: linktest.Keepalive, Version: 1, Procedure: linktest.Ping, Type: linktest.Message}
			var chunks, asked int64
			peer := &linktest.Peer{}
			peer.OnStream = func(c *linktest.PeerConn, f linktest.Frame) {
				// The chunk that was on its way when we asked has come; the answer is before the next.
				if chunks++; chunks%4 == 2 && peer.Pongs.Load() != asked {
					t.Errorf("chunk %d came before an answer", chunks)
				}
				if chunks%4 == 0 {
					asked++
					c.Send(ping)
				}
				time.Sleep(time.Second) // a slow disk
				if f.Status == linktest.OK {
					c.Send(f)
				}
			}
			l := mustPipe(t, Target{}, peer)
			if err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, io.LimitReader(endless{}, 200*uploadChunk), 200*uploadChunk, false); err != nil {
				t.Fatal(err)
			}
			if asked < 40 {
				t.Errorf("only %d pings", asked)
			}
		})
	})
	t.Run("an upload into a daemon that takes nothing more is found out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			l := mustPipe(t, Target{}, &linktest.Peer{OnStream: func(*linktest.PeerConn, linktest.Frame) { <-end }})
			defer close(end)
			start := time.Now()
			err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, endless{}, 1<<40, false)
			var dead *DeadError
			if bound := (DefaultKeepaliveCount + 2) * DefaultKeepaliveInterval; !errors.As(err, &dead) || time.Since(start) > bound {
				t.Errorf("got %v after %v", err, time.Since(start))
			}
		})
	})
}
