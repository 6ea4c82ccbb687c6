// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const (
	formatQCOW2 = "qcow2"
	formatRaw   = "raw"
	// secretMode keeps a seed from everybody but the daemon, which gives it to the guest's QEMU.
	secretMode = "0600"
	// sharedMode lets every guest's QEMU read a published volume.
	sharedMode = "0644"
)

// makeOverlay makes the Proxy's own disk, anew where one is left over: a guest may have booted from that one, and would not take its new
// seed.
func (c *creation) makeOverlay(ctx context.Context) error {
	return c.makeVolume(ctx, volumeSpec{
		Name: c.names.Overlay(c.uid), Format: formatQCOW2, Capacity: bytesOf(int64(c.spec.DiskSizeGiB)), Mode: secretMode,
		BackingPath: c.base.path, BackingFormat: c.base.Content.Format,
	})
}

// makeVolume makes a volume; one of that name that is left over goes first.
func (c *creation) makeVolume(ctx context.Context, s volumeSpec) error {
	text, err := volumeXML(s)
	if err != nil {
		return translate(c.name, "volume "+s.Name, "describing it", err)
	}
	err = c.createVolume(ctx, c.backend, text)
	if IsCode(err, CodeVolumeExists) {
		if err := c.deleteVolume(ctx, s.Name); err != nil {
			return err
		}
		err = c.createVolume(ctx, c.backend, text)
	}
	if err != nil {
		return translate(c.name, "volume "+s.Name, "making it", err)
	}
	return nil
}

func (c *creation) deleteVolume(ctx context.Context, name string) error {
	if err := c.backend.DeleteVolume(ctx, name); err != nil && !IsCode(err, CodeNoVolume) {
		return translate(c.name, "volume "+name, "deleting it", err)
	}
	return nil
}

// checkStillPublished looks at the markers again, now that an overlay refers to the base: a collector takes the marker first, and looks
// at all backing chains after that, so one of the two sees the other.
func (c *creation) checkStillPublished(ctx context.Context) error {
	volumes, err := c.listVolumes(ctx)
	if err != nil {
		return err
	}
	for _, published := range []supply{c.base, c.agent} {
		if published.Marker == "" || slices.Contains(volumes, published.Marker) {
			continue
		}
		if err := c.deleteVolume(ctx, c.names.Overlay(c.uid)); err != nil {
			return err
		}
		return &provider.Error{
			Kind: provider.Transient, Host: c.name, Object: "volume " + published.Volume, Message: "was taken out of use meanwhile; it will be fetched again",
		}
	}
	return nil
}

// makeSeed makes the seed anew, so that it is what the spec says now.
func (c *creation) makeSeed(ctx context.Context) error {
	hypervisors, err := c.hypervisors(ctx)
	if err != nil {
		return err
	}
	content, err := c.seed(hypervisors)
	if err != nil {
		return &provider.Error{Kind: provider.Permanent, Host: c.name, Object: c.object(), Message: err.Error(), Next: "change the spec", Err: err}
	}
	name := c.names.Seed(c.uid)
	if err := c.makeVolume(ctx, volumeSpec{Name: name, Format: formatRaw, Capacity: int64(len(content)), Mode: secretMode}); err != nil {
		return err
	}
	if err := c.backend.Upload(ctx, name, bytes.NewReader(content), int64(len(content))); err != nil {
		return translate(c.name, "volume "+name, "uploading the seed", err)
	}
	return nil
}

// define makes the domain, with its mark in it from the first moment. Where the daemon refuses, what was made for it goes at once.
func (c *creation) define(ctx context.Context) error {
	text, err := c.definition()
	if err != nil {
		return translate(c.name, c.object(), "describing the domain", err)
	}
	err = c.backend.Define(ctx, text)
	if err == nil {
		return nil
	}
	failure := translate(c.name, c.object(), "defining the domain", err)
	var answer *DaemonError
	if asDaemonError(err, &answer) { // any other error may hide a success
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if err := c.removeVolumes(cleanup, c.target, []string{c.names.Overlay(c.uid), c.names.Seed(c.uid)}); err != nil {
			failure.Message += "; and " + err.Error()
		}
	}
	return failure
}

func (c *creation) definition() (string, error) {
	volumes := []string{c.names.Overlay(c.uid), c.names.Seed(c.uid), c.base.Volume}
	if c.agent.Volume != "" {
		volumes = append(volumes, c.agent.Volume)
	}
	element, err := Mark{
		Cluster: c.names.cluster, Entry: c.entry.Name, UID: c.uid, Namespace: c.spec.Namespace, Name: c.spec.Name,
		Created: time.Now(), Volumes: volumes, Pool: c.cfg.Pool, Shape: c.spec.Shape, AgentVersion: c.agentVersion,
		NIC: c.spec.NIC,
	}.Element()
	if err != nil {
		return "", err
	}
	if c.mark, err = DecodeMark(element); err != nil { // as everybody will read it
		return "", err
	}
	return definition(domainSpec{
		Name: c.domain, UUID: c.names.DomainUUID(c.uid), Title: path.Join(c.spec.Namespace, c.spec.Name), Guest: c.guest,
		VCPUs: c.spec.VCPUs, MemoryMiB: c.spec.MemoryMiB, Overlay: c.inPool(c.names.Overlay(c.uid)), Seed: c.inPool(c.names.Seed(c.uid)), Agent: c.agent.path,
		MAC: c.mac(), Network: c.cfg.Network, Bridge: c.cfg.Bridge, Mark: element,
	})
}

// inPool is the path of a volume: pools of files have them all in one directory.
func (c *creation) inPool(volume string) string { return path.Join(c.poolPath, volume) }

// start starts the domain; one that runs already is started.
func (c *creation) start(ctx context.Context) error {
	err := c.backend.Start(ctx, c.domain)
	if err == nil {
		return nil
	}
	var answer *DaemonError
	if errors.As(err, &answer) && answer.Code == CodeOperationInvalid {
		if info, lookErr := c.backend.Domain(ctx, c.domain); lookErr == nil && info.State != domainShutoff {
			return nil
		}
	}
	return translate(c.name, c.object(), "starting the guest", err)
}
