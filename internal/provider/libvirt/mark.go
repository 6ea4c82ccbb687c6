// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// MarkNamespace is the XML namespace of the mark in a domain's metadata. Changing it orphans what exists.
const MarkNamespace = "https://egressproxies.dev/libvirt/instance"

const (
	// markKey is the prefix that the daemon writes the mark with.
	markKey = "egress"
	// markVersion is the version of marks that this program writes, and the newest that it reads.
	markVersion = 1
)

// Mark is our record on a domain: whose it is, and what it was made with.
type Mark struct {
	Cluster, Entry string
	// UID of the Proxy, in canonical form.
	UID string
	// Namespace and Name of the Proxy, for people.
	Namespace, Name string
	Created         time.Time
	// Retained: no collector takes the instance.
	Retained bool
	// Volumes that the domain uses: overlay, seed, base, agent.
	Volumes []string
	// Pool that holds them, by name.
	Pool  string
	Shape provider.Shape
	// AgentVersion is empty without our agent.
	AgentVersion string
	// NIC is what an address pool gave.
	NIC provider.NIC
}

// Owned says whether the mark is of this cluster, entry and Proxy.
func (m Mark) Owned(cluster, entry, uid string) bool {
	return m.Cluster == cluster && m.Entry == entry && SameUID(m.UID, uid)
}

type markXML struct {
	XMLName   xml.Name
	Version   string   `xml:"version,attr"`
	Cluster   string   `xml:"cluster,attr"`
	Entry     string   `xml:"entry,attr"`
	UID       string   `xml:"uid,attr"`
	Namespace string   `xml:"namespace,attr"`
	Name      string   `xml:"name,attr"`
	Created   string   `xml:"created,attr"`
	Retained  bool     `xml:"retained,attr"`
	Pool      string   `xml:"pool,attr"`
	Shape     shapeXML `xml:"shape"`
	NIC       *nicXML  `xml:"nic"`
	Volumes   []string `xml:"volume"`
}

type shapeXML struct {
	Image           string `xml:"image,attr,omitempty"`
	URL             string `xml:"url,attr,omitempty"`
	SHA256          string `xml:"sha256,attr,omitempty"`
	VCPUs           int    `xml:"vcpus,attr"`
	MemoryMiB       int    `xml:"memoryMiB,attr"`
	DiskSizeGiB     int    `xml:"diskSizeGiB,attr"`
	Software        string `xml:"software,attr"`
	Port            int    `xml:"port,attr"`
	UserDataSHA256  string `xml:"userDataSHA256,attr,omitempty"`
	EntryDataSHA256 string `xml:"entryDataSHA256,attr,omitempty"`
	// DestinationsSHA256 came later than the marks' version, as what a nicXML has beside its addresses did.
	DestinationsSHA256 string `xml:"destinationsSHA256,attr,omitempty"`
	AgentVersion       string `xml:"agentVersion,attr,omitempty"`
}

// nicXML has no counterpart where the guest asks by DHCP.
type nicXML struct {
	MAC         string         `xml:"mac,attr,omitempty"`
	Addresses   []netip.Prefix `xml:"address"`
	Gateways    []netip.Addr   `xml:"gateway"`
	Nameservers []netip.Addr   `xml:"nameserver"`
}

func nicElement(n provider.NIC) *nicXML {
	if n.MAC == "" && len(n.Addresses) == 0 {
		return nil
	}
	return &nicXML{n.MAC, n.Addresses, n.Gateways, n.Nameservers}
}

func (n *nicXML) nic() provider.NIC {
	if n == nil {
		return provider.NIC{}
	}
	return provider.NIC{MAC: n.MAC, Addresses: n.Addresses, Gateways: n.Gateways, Nameservers: n.Nameservers}
}

// Element is the mark for a domain's definition, with its namespace.
func (m Mark) Element() (string, error) {
	return m.encode(xml.Name{Space: MarkNamespace, Local: "instance"})
}

// Bare is the mark for SetMetadata, which adds the namespace itself.
func (m Mark) Bare() (string, error) { return m.encode(xml.Name{Local: "instance"}) }

func (m Mark) encode(name xml.Name) (string, error) {
	uid, ok := provider.CanonicalUID(m.UID)
	if !ok {
		return "", fmt.Errorf("no mark for UID %q: not a UUID", m.UID)
	}
	b, err := xml.Marshal(markXML{
		XMLName: name, Version: strconv.Itoa(markVersion), Cluster: m.Cluster, Entry: m.Entry, UID: uid,
		Namespace: m.Namespace, Name: m.Name, Created: m.Created.UTC().Format(time.RFC3339), Retained: m.Retained, Volumes: m.Volumes, Pool: m.Pool,
		Shape: shapeXML{
			Image: m.Shape.Image.Name, URL: redacted(m.Shape.Image.URL), SHA256: m.Shape.Image.SHA256,
			VCPUs: m.Shape.VCPUs, MemoryMiB: m.Shape.MemoryMiB, DiskSizeGiB: m.Shape.DiskSizeGiB,
			Software: string(m.Shape.Software), Port: m.Shape.Port, UserDataSHA256: m.Shape.UserDataSHA256,
			EntryDataSHA256: m.Shape.EntryDataSHA256, DestinationsSHA256: m.Shape.DestinationsSHA256, AgentVersion: m.AgentVersion,
		},
		NIC: nicElement(m.NIC),
	})
	return string(b), err
}

// redacted is an image's URL as a mark may hold it: any client of the daemon reads marks, and a query may hold a token. The digest beside
// it says which content was meant.
func redacted(url string) string {
	if url == "" {
		return ""
	}
	return config.RedactURL(url)
}

// DecodeMark reads a mark as the daemon gives it, with or without its namespace. The error wraps ErrNewer where a newer version of
// the operator wrote it. An unreadable time is not an error: it decides nothing.
func DecodeMark(element string) (Mark, error) {
	d := xml.NewDecoder(strings.NewReader(element))
	var head struct {
		XMLName xml.Name
		Version string `xml:"version,attr"`
	}
	if err := xml.Unmarshal([]byte(element), &head); err != nil {
		return Mark{}, fmt.Errorf("the mark is no XML: %w", err)
	}
	if head.XMLName.Local != "instance" {
		return Mark{}, fmt.Errorf("the mark is an element %q", head.XMLName.Local)
	}
	if !versionPattern.MatchString(head.Version) {
		return Mark{}, fmt.Errorf("the mark's version is %q", head.Version)
	}
	if head.Version != strconv.Itoa(markVersion) {
		return Mark{}, fmt.Errorf("the mark has version %s: %w", head.Version, ErrNewer)
	}
	var x markXML
	if err := d.Decode(&x); err != nil {
		return Mark{}, fmt.Errorf("the mark cannot be read: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Mark{}, errors.New("more than a mark stands where the mark should")
	}
	uid, ok := provider.CanonicalUID(x.UID)
	if !ok || x.Cluster == "" || x.Entry == "" {
		return Mark{}, fmt.Errorf("the mark names no cluster, entry or UID: cluster %q, entry %q, UID %q", x.Cluster, x.Entry, x.UID)
	}
	created, _ := time.Parse(time.RFC3339, x.Created)
	return Mark{
		Cluster: x.Cluster, Entry: x.Entry, UID: uid, Namespace: x.Namespace, Name: x.Name,
		Created: created, Retained: x.Retained, Volumes: x.Volumes, Pool: x.Pool, AgentVersion: x.Shape.AgentVersion,
		Shape: provider.Shape{
			Image: provider.Image{Name: x.Shape.Image, URL: x.Shape.URL, SHA256: x.Shape.SHA256},
			VCPUs: x.Shape.VCPUs, MemoryMiB: x.Shape.MemoryMiB, DiskSizeGiB: x.Shape.DiskSizeGiB,
			Software: provider.Software(x.Shape.Software), Port: x.Shape.Port, UserDataSHA256: x.Shape.UserDataSHA256,
			EntryDataSHA256: x.Shape.EntryDataSHA256, DestinationsSHA256: x.Shape.DestinationsSHA256,
		},
		NIC: x.NIC.nic(),
	}, nil
}
