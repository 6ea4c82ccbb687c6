// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func pooled(address string) provider.NIC {
	return provider.NIC{
		MAC: "52:54:00:12:34:56", Addresses: []netip.Prefix{netip.MustParsePrefix(address)},
		Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, Nameservers: []netip.Addr{netip.MustParseAddr("198.51.100.53")},
	}
}

func TestAnAddressOfAPool(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	spec := r.spec()
	spec.NIC = pooled("198.51.100.7/24")
	made, err := r.settle(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr("198.51.100.7")
	if !slices.Equal(made.Addresses, []netip.Addr{address}) || made.NIC.MAC != spec.NIC.MAC || !slices.Equal(made.NIC.IPs(), []netip.Addr{address}) {
		t.Errorf("made: %v, %+v", made.Addresses, made.NIC)
	}
	if read, err := r.Get(t.Context(), r.ref()); err != nil || !slices.Equal(read.Addresses, made.Addresses) {
		t.Errorf("read without guest agent and lease: %v, %v", read.Addresses, err)
	}
	seed, _ := r.daemon.Content(r.names.Seed(r.uid))
	for _, part := range []string{"network-config", "52:54:00:12:34:56", "198.51.100.7/24", "via: 198.51.100.1"} {
		if !bytes.Contains(seed, []byte(part)) {
			t.Errorf("the seed lacks %q", part)
		}
	}
	var d libvirtxml.Domain
	text, err := r.daemon.Backend().DomainXML(t.Context(), r.domain())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Unmarshal(text); err != nil || d.Devices.Interfaces[0].MAC.Address != spec.NIC.MAC {
		t.Errorf("%v\n%s", err, text)
	}
	if held := r.HeldAddresses(); held[address] != r.uid {
		t.Errorf("held: %v", held)
	}
	t.Run("a new operator knows from the marks who has it", func(t *testing.T) {
		again := rigOver(t, r.daemon, options(t, r.daemon))
		other := again.spec()
		other.UID, other.NIC = uuid.NewString(), pooled("198.51.100.7/24")
		_, err := again.settle(t.Context(), other)
		want(t, err, provider.Capacity, "198.51.100.7", r.domain())
		if held := again.HeldAddresses(); held[address] != r.uid {
			t.Errorf("held: %v", held)
		}
		own := again.spec()
		own.UID, own.NIC = r.uid, spec.NIC
		if _, err := again.settle(t.Context(), own); err != nil {
			t.Errorf("its own: %v", err)
		}
	})
}

func TestWhatTheEntryGivesEveryGuest(t *testing.T) {
	r := newRig(t, libvirttest.Config{}, func(o *libvirt.Options) {
		o.Entry.VendorData, o.Entry.UserData, o.Entry.InstallGuestAgent = "#cloud-config\nvendor: 1\n", "#cloud-config\nentry: 1\n", true
	})
	spec := r.spec()
	spec.UserData = provider.NewSecret("#cloud-config\nown: 1\n")
	if _, err := r.settle(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	seed, mode := r.daemon.Content(r.names.Seed(r.uid))
	for _, part := range []string{"vendor-data", "vendor: 1", "entry: 1", "own: 1", "20-egress-agent", "30-egress-guest-agent"} {
		if !bytes.Contains(seed, []byte(part)) {
			t.Errorf("the seed lacks %q", part)
		}
	}
	if mode != "0600" {
		t.Errorf("mode %s", mode)
	}
	none := r.spec()
	none.UID, none.Software = uuid.NewString(), provider.SoftwareNone
	if _, err := r.settle(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	seed, _ = r.daemon.Content(r.names.Seed(none.UID))
	for _, part := range []string{"vendor", "entry: 1", "egress-agent"} {
		if bytes.Contains(seed, []byte(part)) {
			t.Errorf("software None, and the seed holds %q", part)
		}
	}
}

func TestGuestsOfOneImage(t *testing.T) {
	t.Run("X9: instance-id, MAC, and a machine ID in place of the image's are each guest's own", func(t *testing.T) {
		r := newRig(t, libvirttest.Config{})
		seen := map[string]bool{}
		for range 3 {
			r.uid = uuid.NewString()
			spec := r.spec()
			spec.UserData = provider.NewSecret("#!/bin/sh\n") // all parts are text then
			if _, err := r.settle(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			seed, _ := r.daemon.Content(r.names.Seed(r.uid))
			machineID := "own=" + strings.ReplaceAll(r.uid, "-", "") + "\n"
			if !bytes.Contains(seed, []byte("instance-id: "+r.uid+"\n")) || !bytes.Contains(seed, []byte(machineID)) {
				t.Errorf("the seed of %s has another instance-id or machine ID", r.uid)
			}
			mac := r.names.MAC(r.uid)
			if seen[mac] || mac[1] != '2' && mac[1] != '6' && mac[1] != 'a' && mac[1] != 'e' {
				t.Errorf("MAC %s is not its own, or not locally administered", mac)
			}
			seen[mac] = true
		}
	})
}
