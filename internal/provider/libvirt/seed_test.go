// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

func TestAgentsRefuseTheHypervisors(t *testing.T) {
	c := &creation{Provider: &Provider{entry: config.Entry{Hosts: []config.Host{
		{Name: "a", Address: "198.51.100.7"}, {Name: "b", Address: "[2001:db8::7]:2222"},
	}}}}
	denied, err := c.hypervisors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"198.51.100.7/32", "2001:db8::7/128"}
	if diff := cmp.Diff(want, texts(c.agentConfig(denied).Destinations.Deny)); diff != "" {
		t.Error(diff)
	}
}

func TestAgentsRefuseThisMachineWhereItIsTheHypervisor(t *testing.T) {
	c := &creation{Provider: &Provider{entry: config.Entry{Hosts: []config.Host{{Name: "a", Local: true}}}}}
	denied, err := c.hypervisors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(texts(denied), "127.0.0.1/32") {
		t.Errorf("denied: %v", denied)
	}
}

func texts(prefixes []netip.Prefix) (all []string) {
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}
