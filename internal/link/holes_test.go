// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

// file is a peer's volume, written as libvirt writes one: at a hole it cuts the file off behind it. It begins with what it held before.
type file struct {
	t       *testing.T
	content []byte
	at      int
	packets []string
	sparse  bool
}

func (f *file) peer() *linktest.Peer {
	return &linktest.Peer{
		OnCall: func(_ *linktest.PeerConn, call linktest.Frame) bool {
			f.sparse = f.sparse || call.Procedure == linktest.StorageVolUpload && call.SparseUpload()
			return false
		},
		OnStream: f.take,
	}
}

func (f *file) take(c *linktest.PeerConn, packet linktest.Frame) {
	switch {
	case packet.Type == linktest.Hole:
		n, err := packet.HoleLength()
		if err != nil || !f.sparse || packet.Status != linktest.Continue {
			f.t.Errorf("a hole of %d, %v, announced: %v, status %d", n, err, f.sparse, packet.Status)
		}
		f.at += int(n)
		f.content = append(f.content[:min(f.at, len(f.content))], make([]byte, max(f.at-len(f.content), 0))...)
		clear(f.content[f.at-int(n):])
		f.packets = append(f.packets, fmt.Sprintf("hole %d", n>>10))
	case packet.Status == linktest.Continue:
		f.content = append(f.content, make([]byte, max(f.at+len(packet.Payload)-len(f.content), 0))...)
		f.at += copy(f.content[f.at:], packet.Payload)
		f.packets = append(f.packets, fmt.Sprintf("data %d", len(packet.Payload)>>10))
	default:
		c.Send(packet)
	}
}

// pattern is content by blocks: x for one with data, a dot for zeros.
func pattern(blocks string) []byte {
	var content []byte
	for i, b := range blocks {
		block := make([]byte, holeBlock)
		if b == 'x' {
			block[len(block)-1] = byte(i + 1) // the least that there can be, and at the end
		}
		content = append(content, block...)
	}
	return content
}

func TestHoles(t *testing.T) {
	for blocks, want := range map[string][]string{
		"x":                               {"data 64"},
		".":                               {"data 64"},
		"..":                              {"hole 64", "data 64"},
		"xxxxxxxx":                        {"data 256", "data 256"},
		"x.x.x.x.x":                       {"data 64", "hole 64", "data 64", "hole 64", "data 64", "hole 64", "data 64", "hole 64", "data 64"},
		"x............x":                  {"data 64", "hole 768", "data 64"},
		".....xxx....x...":                {"hole 320", "data 192", "hole 256", "data 64", "hole 128", "data 64"},
		strings.Repeat(".", 40):           {"hole 2496", "data 64"},
		"xx" + strings.Repeat(".", 38):    {"data 128", "hole 2368", "data 64"},
		strings.Repeat(".", 40) + "xxxxx": {"hole 2560", "data 256", "data 64"},
	} {
		for _, cut := range []int{0, 1, holeBlock - 1} {
			for _, sparse := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s less %d, sparse %v", blocks, cut, sparse), func(t *testing.T) {
					content := pattern(blocks)
					packets := uploaded(t, content[:len(content)-cut], sparse)
					holes := slices.ContainsFunc(packets, func(p string) bool { return strings.HasPrefix(p, "hole") })
					if !sparse && holes {
						t.Errorf("holes that were not announced: %q", packets)
					}
					if diff := cmp.Diff(want, packets); sparse && cut == 0 && diff != "" {
						t.Error(diff)
					}
				})
			}
		}
	}
	t.Run("a long one begins with a long chunk", func(t *testing.T) {
		got := uploaded(t, pattern(strings.Repeat(".", openingFrom/holeBlock)), true)
		if diff := cmp.Diff([]string{"data 1024", "hole 15296", "data 64"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// uploaded is how content went to a volume; it has arrived whole.
func uploaded(t *testing.T, content []byte, sparse bool) (packets []string) {
	t.Helper()
	f := &file{t: t, content: bytes.Repeat([]byte{7}, len(content))} // whatever the volume held
	l := mustPipe(t, Target{}, f.peer())
	if err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, bytes.NewReader(content), uint64(len(content)), sparse); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.content, content) {
		t.Error("other content arrived")
	}
	return f.packets
}

// libvirt answers a hole that it cannot make by a reply, and not by a packet of the stream as it does for data.
func TestARefusedHoleIsTheUploadsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustPipe(t, Target{}, &linktest.Peer{OnStream: func(c *linktest.PeerConn, packet linktest.Frame) {
			if packet.Type == linktest.Hole {
				packet.Type, packet.Status = linktest.Reply, linktest.Error
				packet.Payload = linktest.ErrorPayload(uint32(libvirt.ErrSystemError), "No space left")
				c.Send(packet)
			}
		}})
		start := time.Now()
		hole := make([]byte, openingChunk+uploadChunk)
		content := io.MultiReader(bytes.NewReader(hole), bytes.NewReader(pattern("x")), endless{})
		err := l.Upload(t.Context(), libvirt.StorageVol{Name: "v"}, content, 1<<40, true)
		if !hasCode(err, libvirt.ErrSystemError) || time.Since(start) > time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestAnUploadOfZerosEndsWithItsContext(t *testing.T) {
	l := mustPipe(t, Target{}, &linktest.Peer{})
	ctx, cancel := context.WithCancel(t.Context())
	r := &zeroReader{}
	r.after = func() { cancel() }
	if err := l.Upload(ctx, libvirt.StorageVol{Name: "v"}, r, 1<<62, true); err == nil {
		t.Error("it ended well")
	}
}

// zeroReader gives zeros for ever, and calls after when it has given some.
type zeroReader struct {
	n     int
	after func()
}

func (z *zeroReader) Read(p []byte) (int, error) {
	if z.n += len(p); z.n > 64*uploadChunk && z.after != nil {
		z.after()
		z.after = nil
	}
	clear(p)
	return len(p), nil
}
