// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Images fetches images.
type Images interface {
	// Fetch reads an image, verifies it, and puts what it holds into sink, once. The content is complete and verified only when Fetch
	// returns nil; after an error it is worth nothing. Errors that are *provider.Error keep their kind.
	Fetch(ctx context.Context, request ImageRequest, sink Sink) (Content, error)
}

// ImageRequest is what to fetch, and within which bounds.
type ImageRequest struct {
	URL string
	// SHA256 of the file as served, in hexadecimal, or empty.
	SHA256 string
	// Format is qcow2 or raw; empty where the content decides.
	Format string
	// MaxBytes bounds the image as served and as stored.
	MaxBytes int64
	// Untrusted: the URL is a Proxy's own, not the operator's.
	Untrusted bool
	// AllowedHosts bound an untrusted URL and where it is redirected to.
	AllowedHosts []string
}

// Sink takes one image.
type Sink interface {
	// Put stores length bytes of r, no more and no less. An error of r ends it, and is in the chain of Put's.
	Put(ctx context.Context, length int64, r io.Reader) error
}

// publication is a volume on its way into a pool.
type publication struct {
	*Provider
	*host
	object string
	volume string
	report func(percent int)
	conn   Backend // of its own; nil before it was opened
	// made: the volume is there, and ours to remove.
	made bool
}

// publish makes a job that puts a source's content into a volume of its own, and publishes it. A volume that cannot be published is
// removed again; no other name is ever touched.
func (p *Provider) publish(h *host, s Source, object string, fill func(context.Context, Sink) (Content, error)) work {
	return func(ctx context.Context, report func(percent int)) error {
		b := &publication{Provider: p, host: h, object: object, volume: s.NewVolume(), report: report}
		content, err := fill(ctx, b)
		if err == nil {
			err = b.finish(ctx, content)
		}
		if b.conn != nil {
			b.conn.Close() // first: the daemon may still be writing
		}
		if err == nil {
			return nil
		}
		failure := translate(h.name, object, "fetching it", err)
		if b.made {
			b.remove(ctx, failure)
		}
		return failure
	}
}

func (b *publication) remove(ctx context.Context, failure *provider.Error) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if err := b.backend.DeleteVolume(cleanup, b.volume); err != nil && !IsCode(err, CodeNoVolume) {
		failure.Message += fmt.Sprintf("; and its unfinished volume %s could not be deleted: %s", b.volume, bounded(err.Error()))
	}
}

// Put looks for room, makes the volume and uploads into it.
func (b *publication) Put(ctx context.Context, length int64, r io.Reader) error {
	if length < 1 {
		return &provider.Error{Kind: provider.Permanent, Host: b.name, Object: b.object, Message: "it is empty", Next: "correct the URL"}
	}
	conn, err := b.backend.Dedicated(ctx)
	if err != nil {
		return err
	}
	b.conn = conn
	release, err := b.reserveRoom(ctx, b.host, conn, length)
	if err != nil {
		return err
	}
	defer release()
	text, err := volumeXML(volumeSpec{Name: b.volume, Format: formatRaw, Capacity: length, Mode: sharedMode})
	if err != nil {
		return err
	}
	if err := conn.CreateVolume(ctx, text); err != nil {
		// The name is nobody else's: what bears it is ours, even where the answer was lost. An existing one is left alone.
		b.made = !IsCode(err, CodeVolumeExists)
		return err
	}
	b.made = true
	return conn.Upload(ctx, b.volume, &progressReader{r: r, length: length, report: b.report}, length)
}

// finish compares what is in the pool, and publishes it. A completed upload is not thrown away because a connection died: what is left to
// do is done over the shared one then.
func (b *publication) finish(ctx context.Context, c Content) error {
	marker, err := Marker(b.volume, c)
	if err != nil {
		return err
	}
	err = b.finishOver(ctx, b.conn, marker, c)
	var answer *DaemonError
	var judged *provider.Error
	if err == nil || asDaemonError(err, &answer) || errors.As(err, &judged) || ctx.Err() != nil {
		return err
	}
	return b.finishOver(ctx, b.backend, marker, c)
}

func (b *publication) finishOver(ctx context.Context, conn Backend, marker string, c Content) error {
	info, err := conn.Volume(ctx, b.volume)
	if err != nil {
		return err
	}
	if why := hollow(info, c); why != "" {
		return &provider.Error{Host: b.name, Object: "volume " + b.volume, Message: "after the upload " + why}
	}
	text, err := volumeXML(volumeSpec{Name: marker, Format: formatRaw, Mode: sharedMode})
	if err != nil {
		return err
	}
	err = conn.CreateVolume(ctx, text)
	var answer *DaemonError
	switch {
	case err == nil, IsCode(err, CodeVolumeExists): // the marker's name holds our unique part
		return nil
	case !asDaemonError(err, &answer):
		b.made = false // it may be published, and in use: no longer ours to remove
	}
	return err
}

// hollow says how a volume differs from what its marker says; empty where it does not.
func hollow(v VolumeInfo, c Content) string {
	switch {
	case v.Physical > 0 && v.Physical != c.Size:
		return fmt.Sprintf("its file has %d bytes instead of %d", v.Physical, c.Size)
	case v.Physical == 0 && v.Format == formatRaw && v.Capacity != c.Size:
		return fmt.Sprintf("it has %d bytes instead of %d", v.Capacity, c.Size)
	case v.Allocation == 0 && c.Size >= mib:
		return "nothing of it is on the disk"
	}
	return ""
}

type progressReader struct {
	r            io.Reader
	length, done int64
	report       func(percent int)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	p.report(int(float64(p.done) / float64(p.length) * 100))
	return n, err
}

// hashing sums up what was read.
func hashing(r io.Reader) (io.Reader, func() string) {
	sum := sha256.New()
	return io.TeeReader(r, sum), func() string { return hex.EncodeToString(sum.Sum(nil)) }
}
