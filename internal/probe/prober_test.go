// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe/probetest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

const password = "s3cret-Passw0rd"

var limits = probe.Limits{Total: 3 * time.Second, Dial: time.Second}

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
	t.Cleanup(impostor.Close)
	moved := httptest.NewServer(http.RedirectHandler(reflector, http.StatusMovedPermanently))
	t.Cleanup(moved.Close)
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(locked.Close)
	hanging := newHanging(t)

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
		"the first reflector hangs":     {target(probe.HTTP, good.Address, hanging, reflector), probe.Succeeded, "127.0.0.7"},
		"the only reflector hangs":      {target(probe.HTTP, good.Address, hanging), probe.ReflectorDown, ""},
		"the reflector redirects":       {target(probe.HTTP, good.Address, moved.URL), probe.ReflectorDown, ""},
		"the reflector asks for a user": {target(probe.HTTP, good.Address, locked.URL), probe.ReflectorDown, ""},
		"the reflector is down":         {target(probe.HTTP, good.Address, silent), probe.ReflectorDown, ""},
		"an impostor answers both":      {target(probe.HTTP, good.Address, impostor.URL), probe.ReflectorDown, ""},
		"an open proxy":                 {target(probe.HTTP, probetest.NewOpenProxy(t), reflector), probe.OpenProxy, ""},
		"no reflector is configured":    {target(probe.HTTP, good.Address), probe.ReflectorDown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// newHanging takes connections and never answers.
func newHanging(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}

func TestAnonymousSOCKS5FailureIsNoRefusal(t *testing.T) {
	// Opens its method negotiation to everybody, and then fails for a reason of its own: nobody was refused.
	for reply, want := range map[byte]probe.Reason{2: probe.Succeeded, 1: probe.EgressFailed, 8: probe.EgressFailed} {
		address := newSOCKS5(t, reply, probetest.NewReflector(t).Listener.Addr().String())
		v := new(probe.Prober).Probe(t.Context(), target(probe.SOCKS5, address, probetest.NewReflector(t).URL), limits)
		if v.Reason != want {
			t.Errorf("reply %d without credentials: got %s (%s), want %s", reply, v.Reason, v.Message, want)
		}
	}
}

// newSOCKS5 serves whoever offers a password, by way of target, and gives everybody else this reply.
func newSOCKS5(t *testing.T, reply byte, target string) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { serveSOCKS5(conn, reply, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		served.Wait()
	})
	return listener.Addr().String()
}

func serveSOCKS5(conn net.Conn, reply byte, target string) {
	defer conn.Close()
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(conn, b)
		return b
	}
	methods := read(int(read(2)[1]))
	password := bytes.IndexByte(methods, 2) >= 0
	if password {
		_, _ = conn.Write([]byte{5, 2})
		read(int(read(2)[1]))
		read(int(read(1)[0]))
		_, _ = conn.Write([]byte{1, 0})
	} else {
		_, _ = conn.Write([]byte{5, 0})
	}
	read(10) // an IPv4 request
	if !password {
		_, _ = conn.Write([]byte{5, reply, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer upstream.Close()
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() { _, _ = io.Copy(upstream, conn) }()
	_, _ = io.Copy(conn, upstream)
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
