// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Ground is a host on which people put things.
type Ground interface {
	// Volume makes a volume with a content.
	Volume(name, content string) error
	// Domain makes a domain, and starts it.
	Domain(xml string, running bool) error
}

// content of every volume of somebody else's.
const content = "somebody else's"

// Decoys are what is not the operator's.
type Decoys struct {
	Names libvirt.Names
	// Entry of the operator, its Pool, and the URL of its image.
	Entry, Pool, Image string
	// UID of a Proxy whose guest somebody copies.
	UID string
}

// Plant puts onto a host: things of other people's, another cluster's and another entry's instances and bases, what an older provider made, and what a user
// made of our VM.
func (d Decoys) Plant(g Ground) error {
	other, err := libvirt.NewNames("ba9876543210")
	if err != nil {
		return err
	}
	p := planting{ground: g}
	p.domain("build-server", "", nil, true)
	p.domain("egress", "", nil, false)
	p.volume("build-server.qcow2")
	p.volume("debian-12.iso")
	p.instance(other, d.Entry, d.Pool, d.UID)
	p.instance(d.Names, "kvm2-other", d.Pool, uuid.NewString())
	p.bases(other, d.Entry, d.Image)
	p.bases(d.Names, "kvm2-other", d.Image)
	p.bases(d.Names, d.Entry+"-2", d.Image)
	ours := libvirt.Prefix + "-" + d.Names.Cluster()
	for _, v := range []string{
		"egress-base-debian-12.qcow2", "egress-proxies-base-debian.img", ours + "-base-debian.img",
		ours + "-base-" + d.Entry + "-" + strings.Repeat("0", 32) + ".img",
		d.Names.Domain(d.UID) + ".before-upgrade", d.Names.Overlay(d.UID) + ".snap1", d.Names.Overlay(d.UID) + ".bak", "copy-of-" + d.Names.Overlay(d.UID),
	} {
		p.volume(v)
	}
	return p.err
}

// Orphan puts an instance of the operator's own entry there whose Proxy is gone.
func (d Decoys) Orphan(g Ground) error {
	p := planting{ground: g}
	p.instance(d.Names, d.Entry, d.Pool, uuid.NewString())
	return p.err
}

// planting remembers the first error.
type planting struct {
	ground Ground
	err    error
}

func (p *planting) volume(name string) {
	if p.err == nil {
		p.err = p.ground.Volume(name, content)
	}
}

func (p *planting) domain(name, id string, metadata *libvirtxml.DomainMetadata, running bool) {
	if p.err != nil {
		return
	}
	if id == "" {
		id = uuid.NewString()
	}
	text, err := (&libvirtxml.Domain{
		Type: "qemu", Name: name, UUID: id, Metadata: metadata, Memory: &libvirtxml.DomainMemory{Value: 16, Unit: "MiB"},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"}},
	}).Marshal()
	if err == nil {
		err = p.ground.Domain(text, running)
	}
	if err != nil {
		p.err = fmt.Errorf("domain %s: %w", name, err)
	}
}

// instance makes an instance of a cluster and an entry.
func (p *planting) instance(names libvirt.Names, entry, pool, uid string) {
	volumes := []string{names.Overlay(uid), names.Seed(uid)}
	for _, v := range volumes {
		p.volume(v)
	}
	mark, err := libvirt.Mark{
		Cluster: names.Cluster(), Entry: entry, UID: uid, Namespace: "team-a", Name: "exit-7", Created: time.Now().AddDate(-1, 0, 0), Volumes: volumes, Pool: pool,
	}.Element()
	if err != nil {
		p.err = err
		return
	}
	p.domain(names.Domain(uid), names.DomainUUID(uid), &libvirtxml.DomainMetadata{XML: mark}, true)
}

// bases makes a published and an unfinished base of a cluster and an entry.
func (p *planting) bases(names libvirt.Names, entry, url string) {
	source := names.Base(entry, url, "")
	base := source.NewVolume()
	marker, err := libvirt.Marker(base, libvirt.Content{SHA256: strings.Repeat("0", 64), Size: int64(len(content)), Format: "qcow2", VirtualSize: 1 << 30})
	if err != nil {
		p.err = err
		return
	}
	for _, v := range []string{base, marker, source.NewVolume()} {
		p.volume(v)
	}
}
