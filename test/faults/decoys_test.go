// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

// content of every volume of somebody else's.
const content = "somebody else's"

// plantDecoys puts what is not the operator's onto a host: things of other people's, another cluster's and another entry's instances and bases, what an
// older provider made, and what a user made of our VM.
func plantDecoys(t *testing.T, names libvirt.Names, d *libvirttest.Daemon) {
	t.Helper()
	d.AddDomain("build-server", "", true)
	d.AddDomain("egress", "", false)
	d.AddVolume("build-server.qcow2", content)
	d.AddVolume("debian-12.iso", content)
	other, err := libvirt.NewNames("ba9876543210")
	must(t, err)
	plantInstance(t, d, other, entryName, subjectUID)
	plantInstance(t, d, names, "kvm2-other", uuid.NewString())
	plantBases(t, d, other, entryName)
	plantBases(t, d, names, "kvm2-other")
	plantBases(t, d, names, entryName+"-2")
	for _, v := range []string{
		"egress-base-debian-12.qcow2", "egress-proxies-base-debian.img", libvirt.Prefix + "-" + clusterID + "-base-debian.img",
		libvirt.Prefix + "-" + clusterID + "-base-" + entryName + "-" + strings.Repeat("0", 32) + ".img",
		names.Domain(subjectUID) + ".before-upgrade", names.Overlay(subjectUID) + ".snap1", names.Overlay(subjectUID) + ".bak", "copy-of-" + names.Overlay(subjectUID),
	} {
		d.AddVolume(v, content)
	}
}

// plantInstance makes an instance of another cluster or entry.
func plantInstance(t *testing.T, d *libvirttest.Daemon, names libvirt.Names, entry, uid string) {
	t.Helper()
	volumes := []string{names.Overlay(uid), names.Seed(uid)}
	for _, v := range volumes {
		d.AddVolume(v, content)
	}
	mark, err := libvirt.Mark{
		Cluster: names.Cluster(), Entry: entry, UID: uid, Namespace: namespace, Name: "exit-7", Created: time.Now().AddDate(-1, 0, 0), Volumes: volumes, Pool: "default",
	}.Element()
	must(t, err)
	text, err := (&libvirtxml.Domain{
		Type: "kvm", Name: names.Domain(uid), UUID: names.DomainUUID(uid), Metadata: &libvirtxml.DomainMetadata{XML: mark},
	}).Marshal()
	must(t, err)
	must(t, d.DefineXML(text))
	d.SetState(names.Domain(uid), stateRunning, 1)
}

// plantBases makes a published and an unfinished base of another cluster or entry.
func plantBases(t *testing.T, d *libvirttest.Daemon, names libvirt.Names, entry string) {
	t.Helper()
	source := names.Base(entry, imageURL, "")
	base := source.NewVolume()
	marker, err := libvirt.Marker(base, libvirt.Content{SHA256: strings.Repeat("0", 64), Size: int64(len(content)), Format: "qcow2", VirtualSize: 1 << 30})
	must(t, err)
	d.AddVolume(base, content)
	d.AddVolume(marker, "")
	d.AddVolume(source.NewVolume(), content)
}
