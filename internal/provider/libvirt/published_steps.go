// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// findBase finds the published base, or has it fetched in the background.
func (c *creation) findBase(ctx context.Context) (err error) {
	source := c.names.Base(c.entry.Name, c.image.URL, c.image.SHA256)
	request := ImageRequest{
		URL: c.image.URL, SHA256: c.image.SHA256, Format: c.image.Format, MaxBytes: c.entry.MaxImageBytes, Untrusted: c.image.foreign,
	}
	if c.image.foreign {
		request.AllowedHosts = c.entry.AllowURLImages
	}
	c.base, c.basePath, err = c.published(ctx, source, c.image.label, func(ctx context.Context, sink Sink) (Content, error) {
		return c.images.Fetch(ctx, request, sink)
	})
	return err
}

// findAgent finds the published agent, or has it put there in the background.
func (c *creation) findAgent(ctx context.Context) error {
	if c.spec.Software != provider.SoftwareAgent {
		return nil
	}
	if c.Provider.agent == nil {
		return &provider.Error{Kind: provider.Permanent, Message: "this operator has no agent", Next: "install one that has, or use another software type"}
	}
	file, err := c.Provider.agent(c.image.Arch)
	if err != nil {
		return c.localFault(err)
	}
	object := "agent " + file.Version + " for " + c.image.Arch
	source := c.names.Agent(c.entry.Name, c.image.Arch, file.SHA256)
	c.agent, c.agentPath, err = c.published(ctx, source, object, func(ctx context.Context, sink Sink) (Content, error) {
		content, err := file.Read()
		if err != nil {
			return Content{}, c.localFault(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != file.SHA256 {
			return Content{}, c.localFault(fmt.Errorf("the agent's file changed while it was read"))
		}
		image, err := cloudinit.AgentVolume(content)
		if err != nil {
			return Content{}, c.localFault(err)
		}
		r, sum := hashing(image.Reader())
		err = sink.Put(ctx, image.Size(), r)
		return Content{SHA256: sum(), Size: image.Size(), Format: formatRaw, VirtualSize: image.Size()}, err
	})
	c.agentVersion = file.Version
	return err
}

// localFault is trouble with the operator's own files: it may pass.
func (c *creation) localFault(err error) *provider.Error {
	return &provider.Error{
		Kind: provider.Transient, Object: "agent for " + c.image.Arch, Message: bounded(err.Error()), Next: "check the operator's files and its disk", Err: err,
	}
}

// published finds what is published of a source, with its path on the host, or starts a job that publishes it.
func (c *creation) published(
	ctx context.Context, s Source, object string, fill func(context.Context, Sink) (Content, error),
) (Published, string, error) {
	volumes, err := c.backend.Volumes(ctx)
	if err != nil {
		return Published{}, "", translate(c.name, "pool "+c.cfg.Pool, "listing the volumes", err)
	}
	found, ok, err := FindPublished(volumes, s)
	if err != nil {
		return Published{}, "", c.unreadableMarker(err)
	}
	if ok {
		path, err := c.verified(ctx, found)
		if path != "" || err != nil {
			return found, path, err
		}
	}
	percent, err := c.jobs.ensure(c.name+"/"+s.stem, c.uid, c.publish(c.host, s, object, fill))
	if err != nil {
		return Published{}, "", translate(c.name, object, "fetching it", err)
	}
	return Published{}, "", &provider.Error{
		Kind: provider.InProgress, Host: c.name, Object: object, Message: fmt.Sprintf("is being put into pool %s: %d%%", c.cfg.Pool, percent), Progress: percent,
	}
}

func (c *creation) unreadableMarker(err error) *provider.Error {
	e := &provider.Error{
		Kind: provider.Permanent, Host: c.name, Object: "pool " + c.cfg.Pool, Message: err.Error(), Err: err,
		Next: "remove this volume if nobody needs it (virsh vol-delete)",
	}
	if errors.Is(err, ErrNewer) {
		e.Next = "use an operator of that version"
	}
	return e
}

// verified compares a published volume with its marker. One that differs is taken out of use, by its marker alone: guests may run on it.
func (c *creation) verified(ctx context.Context, p Published) (path string, err error) {
	info, err := c.backend.Volume(ctx, p.Volume)
	if err != nil && !IsCode(err, CodeNoVolume) {
		return "", translate(c.name, "volume "+p.Volume, "looking at it", err)
	}
	if err == nil && hollow(info, p.Content) == "" {
		return info.Path, nil
	}
	return "", c.deleteVolume(ctx, p.Marker)
}
