// SPDX-License-Identifier: Apache-2.0

//go:build live

package guest

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// mark is shell that leaves a file which says that it ran.
func mark(name string) string { return "mkdir -p /run/egress-test && touch /run/egress-test/" + name }

// Three guests boot at once. Together they have every kind of vendor data, beside every kind of software.
func TestGuests(t *testing.T) {
	kvmhost.Require(t)
	h := kvmhost.Up(t, guestHost)
	_, cloud, _ := kvmhost.Images(t)
	agent := realAgent(t)

	withAgent := boot(t, h, cloud, agent, func(e *config.Entry, _ *provider.InstanceSpec) {
		e.VendorData = "#cloud-config\nruncmd:\n- " + mark("vendor-config") + "\n"
		e.InstallGuestAgent = true
	})
	static := strings.Replace(h.GuestCIDR, "0/24", "5/24", 1) // DHCP gives others
	withStatic := boot(t, h, cloud, agent, func(e *config.Entry, s *provider.InstanceSpec) {
		e.VendorData = "#!/bin/sh\n" + mark("vendor-script") + "\n"
		s.Software = provider.SoftwareCloudInit
		s.UserData = provider.NewSecret("#cloud-config\nruncmd:\n- " + mark("own") + "\n")
		s.NIC = provider.NIC{
			MAC: "52:54:00:e9:50:05", Addresses: []netip.Prefix{netip.MustParsePrefix(static)},
			Gateways:    []netip.Addr{netip.MustParseAddr(strings.Replace(h.GuestCIDR, "0/24", "1", 1))},
			Nameservers: []netip.Addr{netip.MustParseAddr(h.Outside)},
		}
	})
	withAll := boot(t, h, cloud, agent, func(e *config.Entry, s *provider.InstanceSpec) {
		e.VendorData = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\n#cloud-config\nbootcmd:\n- " + mark("vendor-plain") +
			"\n\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n" + mark("vendor-part") + "\n\n--b--\n"
		e.UserData = "#cloud-config\nruncmd:\n- " + mark("entry") + "\n# Grüße\n"
		s.UserData = provider.NewSecret("#cloud-config\nruncmd:\n- " + mark("own") + "\n")
		e.InstallGuestAgent = true
	})

	t.Run("L13b: plain text, cloud-config, script and multipart vendor data reach cloud-init beside our own parts", func(t *testing.T) {
		withAgent.settled("vendor-config")
		withStatic.settled("vendor-script", "own")
		withAll.settled("vendor-plain", "vendor-part", "entry", "own")
	})
	t.Run("the agents serve, and systemd keeps both services", func(t *testing.T) {
		for _, g := range []*guest{withAgent, withAll} {
			endpoint := fmt.Sprintf("%s:%d", g.address(), port)
			g.await("the agent serves", func(ctx context.Context) bool { return accepts(ctx, h, endpoint, "correct-horse-battery") })
			if out, err := g.sh(t.Context(), "systemctl is-active egress-agent qemu-guest-agent; systemctl is-enabled egress-agent"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	t.Run("a guest has the address of its pool, without DHCP", func(t *testing.T) {
		if address := withStatic.address() + "/24"; address != static {
			t.Errorf("has %s, want %s", address, static)
		}
		out, err := withStatic.sh(t.Context(), "ip -o -4 address show scope global; ip route show default; cat /etc/resolv.conf")
		if err != nil || strings.Count(out, "inet ") != 1 || !strings.Contains(out, static) || !strings.Contains(out, "default via") || !strings.Contains(out, h.Outside) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("credentials change in a running guest, and the old ones go on for the overlap", func(t *testing.T) { rotate(t, h, withAgent) })
}

// accepts says whether the agent lets somebody in: its guests' own network is refused to those who may come in, and to others already
// their credentials.
func accepts(ctx context.Context, h *kvmhost.Host, endpoint, password string) bool {
	through := &url.URL{Scheme: "http", User: url.UserPassword("user", password), Host: endpoint}
	answer, err := lab.Fetch(ctx, through, "http://"+strings.Replace(h.GuestCIDR, "0/24", "1", 1)+"/")
	return err == nil && answer.Status == http.StatusForbidden
}

func rotate(t *testing.T, h *kvmhost.Host, g *guest) {
	const overlap = 20 * time.Second
	booted, err := g.sh(t.Context(), "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := netip.AddrPortFrom(netip.MustParseAddr(g.address()), port)
	next := provider.Credentials{Username: "user", Password: provider.NewSecret("the-next-one")}
	state, err := proxy.AgentGuest{}.Ensure(t.Context(), endpoint, g.spec.ControlKey, next, overlap)
	if err != nil || !state.Changed || state.Previous != overlap {
		t.Fatalf("%+v, %v", state, err)
	}
	if !accepts(t.Context(), h, endpoint.String(), "the-next-one") || !accepts(t.Context(), h, endpoint.String(), "correct-horse-battery") {
		t.Error("in the overlap not both are accepted")
	}
	started := time.Now()
	g.await("the old ones end", func(ctx context.Context) bool { return !accepts(ctx, h, endpoint.String(), "correct-horse-battery") })
	fmt.Printf("figure: old credentials of a running guest ended after %.0f s of an overlap of %.0f s\n", time.Since(started).Seconds(), overlap.Seconds())
	if !accepts(t.Context(), h, endpoint.String(), "the-next-one") {
		t.Error("the new ones are not accepted after the overlap")
	}
	if now, err := g.sh(t.Context(), "cat /proc/sys/kernel/random/boot_id"); err != nil || now != booted {
		t.Errorf("the guest booted meanwhile: %v", err)
	}
}
