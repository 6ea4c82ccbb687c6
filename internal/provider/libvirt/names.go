// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Prefix of everything that the operator makes on a host. Changing it orphans what exists.
const Prefix = "egress"

// domainSpace is the name space of the UUIDs of domains. Changing it orphans what exists.
var domainSpace = uuid.MustParse("6b1c8a52-0f0e-5d5e-9f0b-3a1d1f1c7e55")

var uidPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Names are the names of one cluster's objects on its hosts.
type Names struct{ cluster string }

// NewNames refuses a cluster ID that is not 6 to 32 of a-z and 0-9.
func NewNames(cluster string) (Names, error) {
	if err := provider.CheckCluster(cluster); err != nil {
		return Names{}, err
	}
	return Names{cluster}, nil
}

// Cluster is the cluster ID.
func (n Names) Cluster() string { return n.cluster }

// SameUID compares in canonical form, dashes or not.
func SameUID(a, b string) bool { return provider.CompactUID(a) == provider.CompactUID(b) }

func (n Names) ours() string { return Prefix + "-" + n.cluster + "-" }

// cutOurs is a name without the part that all names of this cluster begin with.
func (n Names) cutOurs(name string) (rest string, ok bool) { return strings.CutPrefix(name, n.ours()) }

// Domain is the name of the domain of a Proxy.
func (n Names) Domain(uid string) string { return n.ours() + "vm-" + provider.CompactUID(uid) }

// DomainUUID is the UUID of the domain of a Proxy.
func (n Names) DomainUUID(uid string) string {
	return uuid.NewSHA1(domainSpace, []byte(n.cluster+"/"+provider.CompactUID(uid))).String()
}

// Overlay is the name of the volume with a Proxy's own disk.
func (n Names) Overlay(uid string) string { return n.Domain(uid) + ".qcow2" }

// Seed is the name of the volume with a Proxy's seed.
func (n Names) Seed(uid string) string { return n.Domain(uid) + ".seed.iso" }

// InstanceUID is the UID in the name of a domain, an overlay or a seed of this cluster, in 32 hexadecimal digits.
func (n Names) InstanceUID(name string) (uid string, ok bool) {
	rest, ok := strings.CutPrefix(name, n.ours()+"vm-")
	if !ok {
		return "", false
	}
	rest = strings.TrimSuffix(strings.TrimSuffix(rest, ".seed.iso"), ".qcow2")
	return rest, uidPattern.MatchString(rest)
}

// MAC of a Proxy's NIC: a locally administered unicast address. The first byte is never fe, which libvirt keeps for its own end.
func (n Names) MAC(uid string) string {
	sum := sha256.Sum256([]byte(n.cluster + "/" + provider.CompactUID(uid)))
	b := sum[:6]
	b[0] = b[0]&^0x01 | 0x02
	if b[0] == 0xfe {
		b[0] = 0xee
	}
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

// ProviderID is what status.providerID shows.
func ProviderID(host, domain string) string { return "hosts/" + host + "/domains/" + domain }
