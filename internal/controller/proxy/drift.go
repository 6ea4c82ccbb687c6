// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// drift shows each field in which the running instance is not what the spec asks for.
func (r *Reconciler) drift(_ context.Context, p *pass) (bool, error) {
	p.drifted(drifts(p.spec.Shape, p.pin(), p.instance)...)
	p.drifted(addressDrift(p.entry.Slots(p.proxy.Status.Host), p.instance.NIC)...)
	return true, nil
}

// drifted adds to what the condition says of drift.
func (p *pass) drifted(fields ...string) {
	if p.drift = append(p.drift, fields...); len(p.drift) > 0 {
		p.provisioned(metav1.ConditionTrue, v1alpha1.ReasonDrifted, fmt.Sprintf(
			"%s runs, and differs from the spec until it is made anew: %s", p.instance.ProviderID, strings.Join(p.drift, "; ")))
	}
}

// drifts lists each field in which an instance differs from what is wanted.
func drifts(want provider.Shape, pin string, is provider.Instance) []string {
	var all []string
	differ := func(field string, have, want any) {
		if have != want {
			all = append(all, fmt.Sprintf("%s: have %v, want %v", field, have, want))
		}
	}
	have := is.Shape
	if pin != "" {
		differ("placement.host", is.Host, pin)
	}
	differ("placement.image", describeImage(have.Image), describeImage(want.Image))
	differ("placement.vcpus", have.VCPUs, want.VCPUs)
	differ("placement.memoryMiB", have.MemoryMiB, want.MemoryMiB)
	differ("placement.diskSizeGb", have.DiskSizeGiB, want.DiskSizeGiB)
	differ("software.type", have.Software, want.Software)
	differ("port", have.Port, want.Port)
	if have.UserDataSHA256 != want.UserDataSHA256 {
		all = append(all, "software.userDataSecretRef: its content changed")
	}
	if have.EntryDataSHA256 != want.EntryDataSHA256 {
		all = append(all, "the entry's vendorData, userData or installGuestAgent changed")
	}
	if have.DestinationsSHA256 != "" && want.DestinationsSHA256 != "" && have.DestinationsSHA256 != want.DestinationsSHA256 {
		all = append(all, "the entry's destinations, or the reflectors, changed: its agent has those of before")
	}
	return all
}

// addressDrift says where the entry's pools are not what the guest was made with.
func addressDrift(slots []config.Slot, has provider.NIC) []string {
	if len(slots) > 0 && len(has.Addresses) == 0 {
		return []string{"addressPools: the guest asks by DHCP"}
	}
	var all []string
	var kept []config.Slot
	for _, a := range has.IPs() {
		i := slices.IndexFunc(slots, func(s config.Slot) bool { return s.Address.Addr() == a })
		if i < 0 {
			all = append(all, "addressPools: no longer have "+a.String())
			continue
		}
		kept = append(kept, slots[i])
	}
	if len(all) > 0 || len(has.Gateways) == 0 { // a mark from before they were kept
		return all
	}
	want := nicOf(kept)
	for _, part := range []struct {
		name    string
		differs bool
	}{
		{"network", !slices.Equal(has.Addresses, want.Addresses)},
		{"gateway", !slices.Equal(has.Gateways, want.Gateways)},
		{"nameservers", !slices.Equal(has.Nameservers, want.Nameservers)},
		{"macs", has.MAC != want.MAC},
	} {
		if part.differs {
			all = append(all, "addressPools: the "+part.name+" of "+listed(texts(has.IPs()))+" changed")
		}
	}
	return all
}

// reseeded is what an instance was made with, but for what it is given from now on if it turns out that it has to be made in full.
func reseeded(was, wanted provider.Shape) provider.Shape {
	if was.Software == wanted.Software {
		was.UserDataSHA256, was.EntryDataSHA256, was.DestinationsSHA256 = wanted.UserDataSHA256, wanted.EntryDataSHA256, wanted.DestinationsSHA256
	}
	return was
}

func describeImage(i provider.Image) string {
	if i.URL != "" {
		return i.String() + " (sha256 " + i.SHA256 + ")"
	}
	return i.Name
}
