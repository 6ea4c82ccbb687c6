// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"strings"
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func TestExamine(t *testing.T) {
	const all = "connection keys socket libvirt capabilities pool space network image"
	cases := map[string]struct {
		daemon libvirttest.Config
		before libvirttest.Fault
		change func(*libvirt.Options, *libvirttest.Daemon)
		topics string
		wrong  map[string]string // topic to what its error says
	}{
		"all is well":        {topics: all},
		"it does not answer": {before: failing("Host", &libvirt.HostError{Reason: provider.HostUnreachable, Message: "no route to host"}), topics: "connection image", wrong: map[string]string{"connection": "no route to host"}},
		"it is somebody else": {before: failing("Host", &libvirt.HostError{Reason: provider.HostUnauthorized, Message: "another key"}), topics: "connection keys image",
			wrong: map[string]string{"keys": "another key"}},
		"sshd does not forward": {before: failing("Host", &libvirt.HostError{Reason: provider.HostIncapable, Message: "AllowTcpForwarding"}),
			topics: "connection keys socket image", wrong: map[string]string{"socket": "AllowTcpForwarding"}},
		"libvirt answers an error": {before: failing("Host", &libvirt.DaemonError{Code: libvirt.CodeInternal, Message: "out of files"}),
			topics: "connection keys socket libvirt image", wrong: map[string]string{"libvirt": "out of files"}},
		"libvirt of this machine is away": {before: failing("Host", &libvirt.HostError{Reason: provider.HostUnreachable, Message: "no such file"}),
			change: func(o *libvirt.Options, _ *libvirttest.Daemon) { o.Entry.Hosts[0].Local = true }, topics: "socket image", wrong: map[string]string{"socket": "no such file"}},
		"everything lacks": {daemon: libvirttest.Config{NoKVM: true, Bridges: []string{"other"}},
			change: func(o *libvirt.Options, d *libvirttest.Daemon) {
				d.StopPool()
				o.Entry.Images["debian"] = config.Image{URL: "file:///nowhere", Arch: "x86_64", Firmware: "bios"}
			},
			topics: "connection keys socket libvirt capabilities pool network image",
			wrong:  map[string]string{"capabilities": "KVM", "pool": "virsh pool-start default", "network": "bridge br0", "image": "no such file"}},
		"the pool is full": {change: func(_ *libvirt.Options, d *libvirttest.Daemon) {
			d.FillPool(1 << 30)
			_, _ = d.Backend().Pool(t.Context(), true) // libvirt says what it last saw
		}, topics: all, wrong: map[string]string{"space": "kept in reserve"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := libvirttest.New(c.daemon)
			d.SetFaults(c.before, nil)
			o := options(t, d)
			if c.change != nil {
				c.change(&o, d)
			}
			var topics []string
			err := libvirt.Examine(t.Context(), o, hostName, func(f provider.Finding) {
				topics = append(topics, f.Topic)
				want := c.wrong[f.Topic]
				if (f.Err != nil) != (want != "") || f.Err != nil && !strings.Contains(f.Err.Error(), want) {
					t.Errorf("%s: %q, %v; want %q", f.Topic, f.Detail, f.Err, want)
				}
			})
			if got := strings.Join(topics, " "); err != nil || got != c.topics {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, c.topics)
			}
		})
	}
}

func TestExamineChangesNothing(t *testing.T) {
	d := libvirttest.New(libvirttest.Config{})
	before := strings.Join(d.Dump(), "\n")
	if err := libvirt.Examine(t.Context(), options(t, d), hostName, func(provider.Finding) {}); err != nil {
		t.Fatal(err)
	}
	if after := strings.Join(d.Dump(), "\n"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestExamineOfAHostThatIsNot(t *testing.T) {
	err := libvirt.Examine(t.Context(), options(t, libvirttest.New(libvirttest.Config{})), "other", func(provider.Finding) {})
	if err == nil || !strings.Contains(err.Error(), "has no host other") {
		t.Error(err)
	}
}
