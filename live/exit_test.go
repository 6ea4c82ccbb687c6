// SPDX-License-Identifier: Apache-2.0

//go:build live

package live

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
)

func TestThreeProxiesAtOnce(t *testing.T) {
	l := theLab(t)
	names := []string{"three-a", "three-b", "three-c"}
	start := time.Now()
	for _, name := range names {
		create(t, l, proxy(name))
	}
	hosts, exits := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		p := awaitReady(t, l, name, tinyBoots)
		hosts[p.Status.Host], exits[p.Status.ExitIPs[0]] = true, true
		if p.Status.ExitIPs[0] != p.Status.IP {
			t.Errorf("%s: the exit is %s, and the VM has %s", name, p.Status.ExitIPs[0], p.Status.IP)
		}
		servesAsItShould(t, l, p)
	}
	if len(exits) != len(names) {
		t.Errorf("%d Proxies have %d exits", len(names), len(exits))
	}
	fmt.Printf("figure: three Proxies at once Ready in %.1f s on %d of 2 hosts\n", time.Since(start).Seconds(), len(hosts))
	remove(t, l, names...)
	nothingLeft(t, l)
}

func TestCloudGuest(t *testing.T) {
	l := theLab(t)
	start := time.Now()
	create(t, l, proxy("cloud", onImage("cloud", "")))
	p := awaitReady(t, l, "cloud", cloudBoots)
	fmt.Printf("figure: a guest with real cloud-init and systemd Ready in %.1f s\n", time.Since(start).Seconds())
	servesAsItShould(t, l, p)
	remove(t, l, "cloud")
	nothingLeft(t, l)
}

// servesAsItShould asks through a proxy as clients do, well and badly.
func servesAsItShould(t *testing.T, l *lab.Lab, p *v1alpha1.Proxy) {
	t.Helper()
	user := userOf(t, l, p)
	name := user.Username()
	for _, c := range []struct {
		what, scheme string
		user         *url.Userinfo
		// refusal is the status of an answer, or part of an error; empty: served.
		status  int
		refusal string
	}{
		{"HTTP", "http", user, http.StatusOK, ""},
		{"SOCKS5", "socks5", user, http.StatusOK, ""},
		{"HTTP without credentials", "http", nil, http.StatusProxyAuthRequired, ""},
		{"HTTP with a wrong password", "http", url.UserPassword(name, "wrong"), http.StatusProxyAuthRequired, ""},
		{"SOCKS5 without credentials", "socks5", nil, 0, "no acceptable authentication methods"},
		{"SOCKS5 with a wrong password", "socks5", url.UserPassword(name, "wrong"), 0, "username/password authentication failed"},
	} {
		answer, err := lab.Fetch(t.Context(), &url.URL{Scheme: c.scheme, User: c.user, Host: p.Status.Endpoint}, l.ReflectorURL())
		switch {
		case c.refusal != "":
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("%s, %s: answer %d, error %v; want a refusal: %s", p.Name, c.what, answer.Status, err, c.refusal)
			}
			continue
		case err != nil:
			t.Errorf("%s, %s: %v", p.Name, c.what, err)
			continue
		case answer.Status != c.status:
			t.Errorf("%s, %s: answered with %d, want %d", p.Name, c.what, answer.Status, c.status)
			continue
		}
		if c.status != http.StatusOK {
			continue
		}
		if seen, err := answer.Address(); err != nil || seen != netip.MustParseAddr(p.Status.IP) {
			t.Errorf("%s, %s: the target saw %v (%v), want %s", p.Name, c.what, seen, err, p.Status.IP)
		}
	}
	private := "http://" + strings.Replace(l.Hosts[0].GuestCIDR, "0/24", "1", 1) + "/"
	answer, err := lab.Fetch(t.Context(), &url.URL{Scheme: "http", User: user, Host: p.Status.Endpoint}, private)
	if err != nil || answer.Status != http.StatusForbidden {
		t.Errorf("%s: a private destination (%s): answer %d, error %v; want 403", p.Name, private, answer.Status, err)
	}
}
