// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe/probetest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const password = "s3cret-Passw0rd"

var limits = probe.Limits{Total: 5 * time.Second, Dial: time.Second}

func target(protocol probe.Protocol, address string, reflectors ...string) probe.Target {
	return probe.Target{Protocol: protocol, Address: address, Username: "u", Password: provider.NewSecret(password), Reflectors: reflectors}
}

func TestProbeThroughRealProxies(t *testing.T) {
	// A proxy from the environment must never be used: this one would answer everything wrongly.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	good := probetest.NewProxy(t, "127.0.0.7:0", "u", password)
	cut := probetest.NewProxy(t, "127.0.0.8:0", "u", password)
	cut.Break(true)
	reflector, silent := probetest.NewReflector(t).URL, "http://"+probetest.NewSilence(t)
	impostor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in</html>") }))
	defer impostor.Close()

	wrong := target(probe.HTTP, good.Address, reflector)
	wrong.Password = provider.NewSecret("other")
	wrongSOCKS := wrong
	wrongSOCKS.Protocol = probe.SOCKS5
	for name, c := range map[string]struct {
		target probe.Target
		want   probe.Reason
		exit   string
	}{
		"HTTP":                          {target(probe.HTTP, good.Address, reflector), probe.Succeeded, "127.0.0.7"},
		"SOCKS5":                        {target(probe.SOCKS5, good.Address, reflector), probe.Succeeded, "127.0.0.7"},
		"the second reflector answers":  {target(probe.HTTP, good.Address, silent, reflector), probe.Succeeded, "127.0.0.7"},
		"wrong credentials":             {wrong, probe.AuthFailed, ""},
		"wrong credentials over SOCKS5": {wrongSOCKS, probe.AuthFailed, ""},
		"nothing listens":               {target(probe.HTTP, probetest.NewSilence(t), reflector), probe.PortClosed, ""},
		"egress is cut":                 {target(probe.HTTP, cut.Address, reflector), probe.EgressFailed, ""},
		"egress is cut over SOCKS5":     {target(probe.SOCKS5, cut.Address, reflector), probe.EgressFailed, ""},
		"the reflector is down":         {target(probe.HTTP, good.Address, silent), probe.ReflectorDown, ""},
		"an impostor answers both":      {target(probe.HTTP, good.Address, impostor.URL), probe.ReflectorDown, ""},
		"an open proxy":                 {target(probe.HTTP, probetest.NewOpenProxy(t), reflector), probe.OpenProxy, ""},
		"no reflector is configured":    {target(probe.HTTP, good.Address), probe.ReflectorDown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := new(probe.Prober).Probe(t.Context(), c.target, limits)
			if v.Reason != c.want {
				t.Fatalf("got %s (%s), want %s", v.Reason, v.Message, c.want)
			}
			if c.exit != "" && v.Exit.String() != c.exit {
				t.Errorf("exit %s, want %s", v.Exit, c.exit)
			}
			if strings.Contains(v.Message, password) {
				t.Error("the message holds the password")
			}
		})
	}
}

func TestProbeThroughATLSProxy(t *testing.T) {
	plain := probetest.NewProxy(t, "127.0.0.9:0", "u", password)
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go relay(listener, plain.Address)

	trusting := target(probe.HTTPS, listener.Addr().String(), probetest.NewReflector(t).URL)
	trusting.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates.Certificate().Raw}))
	if v := new(probe.Prober).Probe(t.Context(), trusting, limits); v.Reason != probe.Succeeded || v.Exit.String() != "127.0.0.9" {
		t.Errorf("with the CA: %s (%s), exit %s", v.Reason, v.Message, v.Exit)
	}
	doubting := trusting
	doubting.CA = ""
	if v := new(probe.Prober).Probe(t.Context(), doubting, limits); v.Reason != probe.EgressFailed || !strings.Contains(v.Message, "certificate") {
		t.Errorf("without the CA: %s (%s)", v.Reason, v.Message)
	}
}

// relay joins each connection with one to address.
func relay(listener net.Listener, address string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			upstream, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer func() { _ = upstream.Close() }()
			go func() { _, _ = io.Copy(upstream, conn) }()
			_, _ = io.Copy(conn, upstream)
		}()
	}
}
