// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// findBase finds the published base, or has it fetched in the background.
func (c *creation) findBase(ctx context.Context) (err error) {
	source := c.image.source()
	opener := c.opener(c.image)
	name := c.names.Base(c.entry.Name, source.URL, source.Pin())
	object := c.image.label
	c.base, err = c.supplied(ctx, name, object, func(ctx context.Context, report func(image.Progress)) error {
		_, err := c.depot.Fetch(ctx, opener, source, c.publication(name, object), report)
		return err
	})
	return err
}

// opener is how an image is fetched: one that a Proxy brought comes from the allowed hosts only, and from public addresses.
func (p *Provider) opener(i imageSpec) *image.Opener {
	opener := p.images
	opener.MaxBytes = p.entry.MaxImageBytes
	opener.Scope = p.entry.Name
	if i.untrusted {
		opener.Scope += "\nuntrusted"
		opener.AllowHost = func(host string) error { return allowHost(p.entry.AllowURLImages, host) }
		opener.DialControl = publicOnly
		return &opener
	}
	opener.Mirrors = make(map[string]image.Mirror, len(p.entry.Mirrors))
	for _, m := range p.entry.Mirrors {
		opener.Mirrors[m.Host] = image.Mirror{
			CAFile: m.CAFile, BasicAuthFile: m.BasicAuthFile, BearerTokenFile: m.BearerTokenFile, Proxy: m.Proxy,
		}
	}
	return &opener
}

func (i imageSpec) source() image.Source {
	return image.Source{
		URL: i.URL, SHA256: i.SHA256, SHA512: i.SHA512, Checksums: i.Checksums, Unpacked: i.DigestOf == config.DigestOfUnpacked,
		Format: image.Format(i.Format),
	}
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
		return localFault("agent for "+c.image.Arch, err)
	}
	object := "agent " + file.Version + " for " + c.image.Arch
	name := c.names.Agent(c.entry.Name, c.image.Arch, file.SHA256)
	sink := c.publication(name, object)
	c.agent, err = c.supplied(ctx, name, object, func(ctx context.Context, report func(image.Progress)) error {
		err := publishAgent(ctx, sink, file, report)
		if err == nil {
			return nil
		}
		return errors.Join(err, sink.Discard(context.WithoutCancel(ctx)))
	})
	c.agentVersion = file.Version
	return err
}

// publishAgent makes the agent's volume and puts it into the pool.
func publishAgent(ctx context.Context, sink *publication, file AgentFile, report func(image.Progress)) error {
	content, err := file.Read()
	if err != nil {
		return localFault(sink.object, err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != file.SHA256 {
		return localFault(sink.object, errors.New("the agent's file changed while it was read"))
	}
	volume, err := cloudinit.AgentVolume(content)
	if err != nil {
		return localFault(sink.object, err)
	}
	info := image.Info{Format: image.Raw, VirtualSize: volume.Size()}
	sum := sha256.New()
	r := &progressReader{r: io.TeeReader(volume.Reader(), sum), total: volume.Size(), report: report}
	if err := sink.Write(ctx, r, volume.Size(), info); err != nil {
		return err
	}
	return sink.Publish(ctx, image.Result{Info: info, SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: volume.Size()})
}

type progressReader struct {
	r           io.Reader
	done, total int64
	report      func(image.Progress)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.done += int64(n)
	p.report(image.Progress{Step: image.StepStoring, Done: p.done, Total: p.total})
	return n, err
}

// localFault is trouble with the operator's own files: it may pass.
func localFault(object string, err error) *provider.Error {
	return &provider.Error{
		Kind: provider.Transient, Object: object, Message: bounded(err.Error()), Next: "check the operator's files and its disk", Err: err,
	}
}

func (h *host) listVolumes(ctx context.Context) ([]string, error) {
	volumes, err := h.backend.Volumes(ctx)
	if err != nil {
		return nil, translate(h.name, "pool "+h.cfg.Pool, "listing the volumes", err)
	}
	return volumes, nil
}

// findSupply looks among volumes for what is published of a source; ok is false where nothing usable is.
func (c *creation) findSupply(ctx context.Context, s Source, volumes []string) (found supply, ok bool, err error) {
	c.use(s)
	found.Published, ok, err = FindPublished(volumes, s)
	if err != nil {
		return supply{}, false, c.unreadableMarker(err)
	}
	if !ok {
		return supply{}, false, nil
	}
	found.path, err = c.verified(ctx, found.Published)
	return found, found.path != "", err
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
