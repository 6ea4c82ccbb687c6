// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// imageSpec is an image of the catalogue, or one that a Proxy brought.
type imageSpec struct {
	config.Image
	// label is what people see.
	label string
	// untrusted: the Proxy named the URL, not the operator.
	untrusted bool
}

// chooseImage finds what the instance boots.
func (c *creation) chooseImage(context.Context) error {
	image, err := resolveImage(c.entry, c.spec.Image)
	if err != nil {
		err.Host = c.name
		return err
	}
	c.image = image
	return nil
}

// resolveImage finds an image in the entry, or judges the one that a Proxy brought.
func resolveImage(entry config.Entry, want provider.Image) (imageSpec, *provider.Error) {
	if want.URL != "" {
		return foreignImage(entry, want)
	}
	key := want.Name
	if key == "" {
		key = entry.DefaultImage
	}
	image, ok := entry.Images[key]
	if !ok {
		return imageSpec{}, &provider.Error{
			Kind: provider.Permanent, Object: fmt.Sprintf("image %q", key), Message: fmt.Sprintf("entry %s has no such image", entry.Name),
			Next: "name one of: " + strings.Join(entry.ImageNames(), ", "),
		}
	}
	image.Arch = archOr(image.Arch)
	return imageSpec{Image: image, label: "image " + key}, nil
}

func foreignImage(entry config.Entry, want provider.Image) (imageSpec, *provider.Error) {
	u, err := url.Parse(want.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return imageSpec{}, &provider.Error{
			Kind: provider.Permanent, Message: "placement.image.url is no URL without user and password", Next: "correct it",
		}
	}
	refuse := func(message, next string) (imageSpec, *provider.Error) {
		return imageSpec{}, &provider.Error{Kind: provider.Permanent, Object: "image " + config.RedactURL(want.URL), Message: message, Next: next}
	}
	switch {
	case len(entry.AllowURLImages) == 0:
		return refuse("entry "+entry.Name+" takes no images by URL", "name one of: "+strings.Join(entry.ImageNames(), ", "))
	case allowHost(entry.AllowURLImages, u.Hostname()) != nil:
		return refuse("entry "+entry.Name+" takes no images from this host", "use one of: "+strings.Join(entry.AllowURLImages, ", "))
	case want.SHA256 == "":
		return refuse("an image by URL needs its sha256", "set placement.image.sha256")
	}
	return imageSpec{Image: config.Image{URL: want.URL, SHA256: want.SHA256, Arch: archX86}, label: "image " + config.RedactURL(want.URL), untrusted: true}, nil
}

func allowHost(allowed []string, host string) error {
	if slices.ContainsFunc(allowed, func(h string) bool { return strings.EqualFold(h, host) }) {
		return nil
	}
	return fmt.Errorf("the host %q is not one of allowURLImages", host)
}

// checkCapable finds how the guest is run.
func (c *creation) checkCapable(ctx context.Context) error {
	guest, err := c.capable(ctx, c.host, c.needOf(c.image.Image))
	c.guest = guest
	return err
}

// checkSize refuses a disk that the image does not fit in: QEMU would cut it off.
func (c *creation) checkSize(context.Context) error {
	disk, virtual := bytesOf(int64(c.spec.DiskSizeGiB)), c.base.Content.VirtualSize
	if disk >= virtual {
		return nil
	}
	return &provider.Error{
		Kind: provider.Permanent, Host: c.name, Object: c.image.label,
		Message: fmt.Sprintf("diskSizeGb is %d (%d bytes), and the image's disk has %d bytes (%s)", c.spec.DiskSizeGiB, disk, virtual, size(virtual)),
		Next:    fmt.Sprintf("set diskSizeGb to %d or more", (virtual+gib-1)/gib),
	}
}

// takeRoom looks at the pool anew and keeps what this instance will need until it runs.
func (c *creation) takeRoom(ctx context.Context) error {
	pool, release, err := c.reserveRoom(ctx, c.host, c.backend, firstBoot+maxSeed)
	if err == nil {
		c.poolPath, c.release = pool.Path, release
	}
	return err
}
