// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestCapacityCountsAllOwners(t *testing.T) {
	w := newWorld(t)
	h := HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 2}
	other := Owner{Cluster: "deadbeef", Entry: "sim"}
	w.attach(t, owner, h)
	w.attach(t, other, h)
	w.mustCreate(t, "shop-1")
	if _, err := w.Create(t.Context(), other, specOn(w.port, uidA, "theirs")); err != nil {
		t.Fatal(err)
	}
	_, err := w.Create(t.Context(), owner, specOn(w.port, uidB, "shop-2"))
	wantError(t, "a third instance", err, provider.Capacity, "")
	w.mu.Lock()
	states := w.hostStates(owner)
	w.mu.Unlock()
	if states[0].Instances != 1 || states[0].MaxInstances != 1 {
		t.Errorf("host state %+v: of two places, another owner has one", states[0])
	}
	if err := w.Delete(t.Context(), other, refA); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), owner, specOn(w.port, uidB, "shop-2")); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}

func TestAddressesRunOut(t *testing.T) {
	w := newWorld(t)
	small := netip.PrefixFrom(w.network.Addr(), 30)
	w.attach(t, owner, HostDescription{Name: "sim-1", Addresses: small, Capacity: 100})
	var got []netip.Addr
	for range 2 {
		i, err := w.Create(t.Context(), owner, specOn(w.port, uuid.NewString(), "shop"))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, i.Addresses...)
	}
	if len(got) != 2 || got[0] == got[1] || !small.Contains(got[0]) || !small.Contains(got[1]) || got[0] == small.Addr() || got[1] == small.Addr() {
		t.Errorf("addresses %v", got)
	}
	_, err := w.Create(t.Context(), owner, specOn(w.port, uuid.NewString(), "shop"))
	wantError(t, "a third instance", err, provider.Capacity, "")
}

func TestAddressesThatOthersListenOnAreLeftToThem(t *testing.T) {
	w := newWorld(t)
	only := netip.PrefixFrom(w.network.Addr(), 32)
	w.attach(t, owner, HostDescription{Name: "sim-1", Addresses: only, Capacity: 100})
	theirs, err := net.Listen("tcp4", net.JoinHostPort(only.Addr().String(), strconv.Itoa(w.port)))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	_, err = w.create("shop-1")
	wantError(t, "create", err, provider.Capacity, "")
	if e, ok := errors.AsType[*provider.Error](err); !ok || !strings.Contains(e.Next, strconv.Itoa(w.port)) {
		t.Errorf("%q does not say which port is taken", err)
	}
	theirs.Close()
	if i := w.mustCreate(t, "shop-1"); i.Addresses[0] != only.Addr() {
		t.Errorf("address %v", i.Addresses)
	}
}

func TestPortTakenWhileAnInstanceBoots(t *testing.T) {
	w := newWorld(t)
	w.mustCreate(t, "shop-1")
	address := w.instances[key{"sim-1", instanceName(cluster, uidA)}].address
	theirs, err := net.Listen("tcp4", net.JoinHostPort(address.String(), strconv.Itoa(w.port)))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	w.clock.advance(2 * time.Second)
	w.wantState(t, provider.StateCrashed)
	if i := w.booted(t, "shop-1"); i.Addresses[0] == address {
		t.Errorf("made anew it has the address %v, which is taken", address)
	}
}

func TestSharedHosts(t *testing.T) {
	w := newWorld(t)
	other := Owner{Cluster: "deadbeef", Entry: "sim"}
	h := HostDescription{Name: "sim-1", Addresses: w.network, Capacity: 100}
	w.attach(t, other, h)
	w.mustCreate(t, "shop-1")
	moved := h
	moved.Addresses = newNetwork()
	err := w.Attach(t.Context(), other, Description{Hosts: []HostDescription{moved}})
	wantError(t, "other addresses for a host that is used", err, provider.Permanent, "")
	if err := w.Attach(t.Context(), owner, Description{Hosts: []HostDescription{moved}}); err != nil {
		t.Errorf("whoever alone has instances there may move it: %v", err)
	}
	for what, got := range map[string]int{"all": 1, "the other's": 0} {
		list, err := w.List(t.Context(), map[string]Owner{"all": owner, "the other's": other}[what])
		if err != nil || len(list) != got {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
}

func TestNotAttached(t *testing.T) {
	w := newWorld(t)
	stranger := Owner{Cluster: cluster, Entry: "unknown"}
	_, err := w.Get(t.Context(), stranger, refA)
	wantError(t, "get", err, provider.Transient, ReasonNotAttached)
	_, err = w.List(t.Context(), stranger)
	wantError(t, "list", err, provider.Transient, ReasonNotAttached)
	wantError(t, "watch", w.Watch(t.Context(), stranger, func(Event) {}), provider.Transient, ReasonNotAttached)
	wantError(t, "attach", w.Attach(t.Context(), Owner{Cluster: "../..", Entry: "sim"}, Description{}), provider.Permanent, "")
}

func TestRefusedSpecs(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*provider.InstanceSpec){
		"software of the user's own": func(s *provider.InstanceSpec) { s.Software = provider.SoftwareCloudInit },
		"a short control key":        func(s *provider.InstanceSpec) { s.ControlKey = provider.NewSecret("short") },
		"no password":                func(s *provider.InstanceSpec) { s.Credentials.Password = provider.NewSecret("") },
		"no port":                    func(s *provider.InstanceSpec) { s.Port = 0 },
		"an image by URL":            func(s *provider.InstanceSpec) { s.Image.URL = "https://images.example/x.qcow2" },
	} {
		spec := specOn(w.port, uidA, "shop-1")
		change(&spec)
		_, err := w.Create(t.Context(), owner, spec)
		wantError(t, name, err, provider.Permanent, "")
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Next == "" {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
}

func TestCredentialsChangeOverTheControlChannel(t *testing.T) {
	w := newWorld(t)
	i := w.booted(t, "shop-1")
	client := agentapi.Client{Address: w.endpoint(i), Key: controlKey}
	status, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: "another"}})
	if err != nil || status.Version != "v0.0.0-test" {
		t.Fatalf("%+v, %v", status, err)
	}
	w.wantProbe(t, i, probe.AuthFailed)
	if _, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: password}}); err != nil {
		t.Fatal(err)
	}
	w.wantProbe(t, i, probe.Succeeded)
	// They are kept while a fault comes and goes, for which the port is opened anew.
	if _, err := client.PutCredentials(t.Context(), []agentapi.Credential{{Username: username, Password: "another"}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.SetFault(t.Context(), Rule{Fault: config.FaultPortClosed}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ClearFaults(t.Context(), config.FaultPortClosed); err != nil {
			t.Fatal(err)
		}
	}
	w.wantProbe(t, i, probe.AuthFailed)
	stranger := agentapi.Client{Address: w.endpoint(i), Key: agentapi.NewKey()}
	if _, err := stranger.Status(t.Context()); !errors.Is(err, agentapi.ErrWrongKey) {
		t.Errorf("with another key: %v", err)
	}
}

func TestOtherThanLoopbackTargets(t *testing.T) {
	w := newWorld(t)
	i := w.booted(t, "shop-1")
	for _, target := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "[::1]:80", "10.0.0.1:80"} {
		conn, err := net.Dial("tcp4", w.endpoint(i))
		if err != nil {
			t.Fatal(err)
		}
		request := &http.Request{Method: http.MethodConnect, Host: target, Header: http.Header{}}
		request.SetBasicAuth(username, password)
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n\r\n", target, target, request.Header.Get("Authorization"))
		answer, err := http.ReadResponse(bufio.NewReader(conn), request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(io.LimitReader(answer.Body, 500))
		if answer.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "loopback") {
			t.Errorf("%s: %s %q, %v", target, answer.Status, body, err)
		}
		conn.Close()
	}
}

func TestNothingSecretIsLoggedOrShown(t *testing.T) {
	var logged bytes.Buffer
	w := NewWorld(WorldOptions{Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	defer w.Close()
	e := entry("sim")
	attach(t, w, owner, e)
	spec := specOn(freePort(t), uidA, "shop-1")
	if _, err := w.Create(t.Context(), owner, spec); err != nil {
		t.Fatal(err)
	}
	wire := toWire(spec)
	records, err := w.Instances(t.Context())
	all := fmt.Sprintf("%s %+v %v %#v %v %+v", logged.String(), records, err, *wire, *wire, wire)
	for what, secret := range map[string]string{"the password": password, "the control key": string(controlKey[:]), "the key's bytes": fmt.Sprintf("%d", controlKey[:8])[1:20]} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is shown: %s", what, all)
		}
	}
	if !strings.Contains(all, "shop-1") {
		t.Errorf("nothing is logged: %s", all)
	}
}

func TestWatchTellsOfChanges(t *testing.T) {
	w := newWorld(t)
	events := make(chan Event, 100)
	watching := make(chan error)
	go func() { watching <- w.Watch(t.Context(), owner, func(e Event) { events <- e }) }()
	if e := <-events; len(e.UIDs) > 0 || len(e.Hosts) != 1 {
		t.Errorf("the first event is %+v", e)
	}
	w.mustCreate(t, "shop-1")
	if e := <-events; e.Hosts[0].Instances != 1 {
		t.Errorf("after create: %+v", e)
	}
	w.clock.advance(2 * time.Second)
	if e := <-events; len(e.UIDs) != 1 || e.UIDs[0] != uidA {
		t.Errorf("after the boot: %+v", e)
	}
	w.Close()
	wantError(t, "watch", <-watching, provider.Transient, "")
}
