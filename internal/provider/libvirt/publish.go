// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// publication is a volume on its way into a pool: the sink of one fetch. Each attempt takes a name that nobody else has.
type publication struct {
	*Provider
	*host
	source Source
	object string

	volume  string
	conn    Backend // of its own, once it was opened
	release func()
	done    func() // the volume is not written any more
	// made: the volume is there, and ours to remove.
	made bool
}

var _ image.Sink = (*publication)(nil)

func (c *creation) publication(s Source, object string) *publication {
	return &publication{Provider: c.Provider, host: c.host, source: s, object: object}
}

// Write looks for room, makes the volume and uploads into it.
func (b *publication) Write(ctx context.Context, r io.Reader, length int64, _ image.Info) error {
	return b.judged("uploading it", b.write(ctx, r, length))
}

func (b *publication) write(ctx context.Context, r io.Reader, length int64) (err error) {
	b.volume = b.source.NewVolume()
	b.done = b.writes(b.volume)
	if b.conn, err = b.backend.Dedicated(ctx); err != nil {
		return err
	}
	if _, b.release, err = b.reserveRoom(ctx, b.host, b.conn, length); err != nil {
		return err
	}
	text, err := volumeXML(volumeSpec{Name: b.volume, Format: formatRaw, Capacity: length, Mode: sharedMode})
	if err != nil {
		return err
	}
	if err := b.createVolume(ctx, b.conn, text); err != nil {
		// Where the answer was lost, what bears the name is ours; where it exists already, it is not.
		b.made = !IsCode(err, CodeVolumeExists)
		return err
	}
	b.made = true
	return b.conn.Upload(ctx, b.volume, r, length)
}

// Publish compares what is in the pool, and makes the marker.
func (b *publication) Publish(ctx context.Context, result image.Result) error {
	err := b.judged("publishing it", b.finish(ctx, Content{
		SHA256: result.SHA256, Unpacked: result.Unpacked, Size: result.Bytes, Format: string(result.Format), VirtualSize: result.VirtualSize,
	}))
	if err == nil {
		b.end()
	}
	return err
}

// Discard removes what Write made.
func (b *publication) Discard(ctx context.Context) error {
	b.end() // first: the daemon may still be writing
	if !b.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	if err := b.backend.DeleteVolume(ctx, b.volume); err != nil && !IsCode(err, CodeNoVolume) {
		return fmt.Errorf("volume %s: %w", b.volume, err)
	}
	b.made = false
	return nil
}

// end closes the connection, and gives back the room and the volume.
func (b *publication) end() {
	if b.done != nil {
		defer b.done()
		b.done = nil
	}
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
	if b.release != nil {
		b.release()
		b.release = nil
	}
}

// judged gives a sink's error the kind that the job's next attempt depends on; the provider's own error stays in its chain.
func (b *publication) judged(doing string, err error) error {
	if err == nil {
		return nil
	}
	e := translate(b.name, b.object, doing, err)
	kind := image.Transient
	switch e.Kind {
	case provider.Capacity:
		kind = image.Capacity
	case provider.Permanent, provider.Unauthorized, provider.Conflict:
		kind = image.Permanent
	}
	return &image.Error{Kind: kind, Message: e.Error(), Err: e}
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
	err = b.createVolume(ctx, conn, text)
	var answer *DaemonError
	switch {
	case err == nil, IsCode(err, CodeVolumeExists): // the marker's name holds our unique part
		return nil
	case !asDaemonError(err, &answer):
		b.made = false // it may be published, and in use: no longer ours to remove
	}
	return err
}

// hollow says how a volume differs from what its marker says; empty where it does not. An image may be holes for the most part, but its end is always
// written: something of it is on the disk, whatever it holds.
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
