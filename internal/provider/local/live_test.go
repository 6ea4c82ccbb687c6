// SPDX-License-Identifier: Apache-2.0

//go:build live

package local

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// onUplinks is set in the process that runs inside the machine with uplinks, to the namespace of what is behind them.
const onUplinks = "EGRESS_LOCAL_TEST_WORLD"

const (
	first, second   = "10.71.0.2", "10.72.0.2"
	extra, first6   = "10.71.0.3", "fd71::2"
	firstUp, nextUp = "up0", "up1"
)

// TestUplinks is a machine with two uplinks, in a network namespace of its own; what is behind them is in another, which takes nothing
// that comes by the wrong uplink.
func TestUplinks(t *testing.T) {
	if os.Getenv(onUplinks) != "" {
		uplinks(t)
		return
	}
	sweep(t)
	machine, behind := fmt.Sprintf(localPrefix+"%d", os.Getpid()), fmt.Sprintf(worldPrefix+"%d", os.Getpid())
	for _, name := range []string{machine, behind} {
		ip(t, "netns", "add", name)
		t.Cleanup(func() { ip(t, "netns", "del", name) })
		ip(t, "-n", name, "link", "set", "lo", "up")
	}
	for _, a := range []string{"198.51.100.80/32", "198.51.100.53/32", "2001:db8:80::80/128"} {
		ip(t, "-n", behind, "addr", "add", a, "dev", "lo")
	}
	for _, setting := range []string{"net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1", "net.ipv6.conf.default.accept_dad=0"} {
		run(t, "ip", "netns", "exec", behind, "sysctl", "-qw", setting)
	}
	resolver := filepath.Join("/etc/netns", machine)
	if err := os.MkdirAll(resolver, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(resolver) })
	if err := os.WriteFile(filepath.Join(resolver, "resolv.conf"), []byte("nameserver "+hostOf(worldNames)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wire(t, machine, behind, firstUp)
	wire(t, machine, behind, nextUp)
	startWorld(t, behind)

	inside := exec.CommandContext(t.Context(), "ip", "netns", "exec", machine, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	inside.Env = append(os.Environ(), onUplinks+"="+behind)
	out, err := inside.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("inside the namespace: %v", err)
	}
}

// inside runs ip in the machine's own namespace.
func inside(t *testing.T, args ...string) { t.Helper(); ip(t, args...) }

// fleet is one Proxy on each exit.
type fleet struct {
	*Provider
	made  map[string]provider.Instance
	told  <-chan string
	world string
}

func newFleet(t *testing.T, keys string, reflectors ...string) *fleet {
	t.Helper()
	entry := entryOf(t, keys)
	f := &fleet{
		Provider: start(t, Options{Entry: entry, Interval: time.Second, Reflectors: append(reflectors, worldReflector, worldReflector6, worldCanary, worldName+":80")}),
		made:     map[string]provider.Instance{}, world: os.Getenv(onUplinks),
	}
	f.told = told(t, f.Provider)
	for i, name := range entry.HostNames() {
		f.made[name] = create(t, f.Provider, name, 20000+i)
	}
	return f
}

func (f *fleet) proxy(t *testing.T, exit string) string {
	t.Helper()
	return endpoint(t, get(t, f.Provider, f.made[exit].InstanceRef))
}

func (f *fleet) seen(t *testing.T, exit, target, want string) {
	t.Helper()
	if got := seenAs(t, f.proxy(t, exit), target); got != want {
		t.Errorf("exit %s is seen as %q at %s, want %s", exit, got, target, want)
	}
}

// pausedSoon waits until a watcher is told of an exit that is paused, and checks what Get and clients are told.
func (f *fleet) pausedSoon(t *testing.T, exit, why string) {
	t.Helper()
	f.soon(t, exit, provider.StatePaused)
	if i := get(t, f.Provider, f.made[exit].InstanceRef); !strings.Contains(i.StateReason, why) {
		t.Errorf("exit %s: %q, want %q", exit, i.StateReason, why)
	}
	for range 5 {
		wantAnswer(t, f.proxy(t, exit), worldCanary, http.StatusBadGateway, proxyproto.FailureExitGone)
	}
}

// soon waits until a watcher is told of an instance that is in that state.
func (f *fleet) soon(t *testing.T, exit string, state provider.State) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case uid := <-f.told:
			if uid == f.made[exit].UID && get(t, f.Provider, f.made[exit].InstanceRef).State == state {
				return
			}
		case <-deadline:
			t.Fatalf("exit %s does not become %s: %+v", exit, state, get(t, f.Provider, f.made[exit].InstanceRef))
		}
	}
}

// of asks what is behind the uplinks, directly.
func of(t *testing.T, path string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + worldReflector + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// nothingLeft holds what is behind the uplinks to having seen nothing of the requests that could not leave by their exit.
func nothingLeft(t *testing.T) {
	t.Helper()
	if got := of(t, "/canary"); got != "[]" {
		t.Errorf("requests left by other addresses: %s", got)
	}
}

func uplinks(t *testing.T) {
	here := newReflector(t)
	f := newFleet(t, fmt.Sprintf("  addresses: [outgoing, %s, %s, %s, 127.0.0.50]\n  interfaces: [%s]\n", first, second, extra, nextUp), here.target())

	t.Run("each exit is seen from its own address, by its own uplink", func(t *testing.T) {
		for exit, address := range map[string]string{config.Outgoing: first, first: first, second: second, extra: extra, nextUp: second} {
			f.seen(t, exit, worldReflector, address)
			f.seen(t, exit, worldName+":80", address)
			if got := of(t, "/asked"); got != address {
				t.Errorf("exit %s: the name server was asked from %q", exit, got)
			}
			if exit != nextUp {
				f.seen(t, exit, here.target(), address)
			}
		}
		f.seen(t, config.Outgoing, worldReflector6, first6)
	})
	t.Run("what an exit does not reach", func(t *testing.T) {
		_, port, _ := net.SplitHostPort(here.target())
		wantAnswer(t, f.proxy(t, nextUp), here.target(), http.StatusBadGateway, proxyproto.FailureNetworkUnreachable)
		wantAnswer(t, f.proxy(t, second), worldReflector6, http.StatusBadGateway, proxyproto.FailureNetworkUnreachable)
		wantAnswer(t, f.proxy(t, "127.0.0.50"), worldReflector, http.StatusBadGateway, proxyproto.FailureLoopbackOnly)
		for _, target := range []string{first + ":" + port, "127.0.0.1:1", "localhost:" + port, "10.0.0.1:80", "169.254.169.254:80"} {
			wantAnswer(t, f.proxy(t, first), target, http.StatusForbidden, proxyproto.FailurePolicy)
		}
	})
	t.Run("an address goes away and comes back", func(t *testing.T) { addressGoes(t, f) })
	t.Run("an interface goes down, away, and comes back", func(t *testing.T) { interfaceGoes(t, f) })
	t.Run("outgoing follows the default route", func(t *testing.T) { outgoingFollows(t, f) })
	t.Run("an unprivileged user binds to an interface", unprivileged)
}

func addressGoes(t *testing.T, f *fleet) {
	open, err := tunnel(t, f.proxy(t, second), worldReflector)
	if err != nil {
		t.Fatal(err)
	}
	proxy := f.proxy(t, second)
	inside(t, "addr", "del", second+"/24", "dev", nextUp)
	wantAnswer(t, proxy, worldCanary, http.StatusBadGateway, proxyproto.FailureExitGone) // before anybody looked
	f.pausedSoon(t, second, second)
	if !ends(open) {
		t.Error("a tunnel outlives its address")
	}
	f.seen(t, first, worldReflector, first)
	nothingLeft(t)
	inside(t, "addr", "add", second+"/24", "dev", nextUp)
	routeHere(t, nextUp)
	f.soon(t, second, provider.StateRunning)
	f.seen(t, second, worldReflector, second)
	f.soonSeen(t, nextUp, second)
}

// soonSeen waits for an exit that came back together with another one.
func (f *fleet) soonSeen(t *testing.T, exit, address string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for get(t, f.Provider, f.made[exit].InstanceRef).State != provider.StateRunning {
		if time.Now().After(deadline) {
			t.Fatalf("exit %s does not come back", exit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.seen(t, exit, worldReflector, address)
}

// routeHere is route for the machine's own namespace.
func routeHere(t *testing.T, name string) {
	t.Helper()
	n := name[2:]
	network := "10.7" + string(n[0]+1)
	inside(t, "route", "replace", "default", "via", network+".0.1", "dev", name, "metric", "10"+n)
	inside(t, "route", "replace", "default", "via", network+".0.1", "dev", name, "table", "7"+n)
}

func interfaceGoes(t *testing.T, f *fleet) {
	inside(t, "link", "set", nextUp, "down")
	f.pausedSoon(t, nextUp, "interface "+nextUp+" is down")
	inside(t, "link", "set", nextUp, "up")
	routeHere(t, nextUp)
	f.soon(t, nextUp, provider.StateRunning)
	f.seen(t, nextUp, worldReflector, second)

	open, err := tunnel(t, f.proxy(t, nextUp), worldReflector)
	if err != nil {
		t.Fatal(err)
	}
	inside(t, "link", "del", nextUp)
	f.pausedSoon(t, nextUp, "interface "+nextUp+" is not there")
	f.soonPaused(t, second)
	if !ends(open) {
		t.Error("a tunnel outlives its interface")
	}
	f.seen(t, config.Outgoing, worldReflector, first)
	nothingLeft(t)
	inside(t, "link", "add", nextUp, "type", "veth", "peer", "name", "r1", "netns", f.world)
	ip(t, "-n", f.world, "addr", "add", "10.72.0.1/24", "dev", "r1")
	ip(t, "-n", f.world, "link", "set", "r1", "up")
	inside(t, "addr", "add", second+"/24", "dev", nextUp)
	inside(t, "link", "set", nextUp, "up")
	routeHere(t, nextUp)
	f.soon(t, nextUp, provider.StateRunning)
	f.seen(t, nextUp, worldReflector, second)
	f.soonSeen(t, second, second)
}

// soonPaused is pausedSoon for an exit that went together with another one.
func (f *fleet) soonPaused(t *testing.T, exit string) {
	t.Helper()
	for range 3 {
		wantAnswer(t, f.proxy(t, exit), worldCanary, http.StatusBadGateway, proxyproto.FailureExitGone)
	}
}

func outgoingFollows(t *testing.T, f *fleet) {
	open, err := tunnel(t, f.proxy(t, config.Outgoing), worldReflector)
	if err != nil {
		t.Fatal(err)
	}
	// Another entry, whose proxy listens where it sends from.
	there := newFleet(t, "  addresses: [outgoing]\n  listen: exit\n")
	was, proxy := there.proxy(t, config.Outgoing), f.proxy(t, config.Outgoing)
	if hostOf(was) != first {
		t.Errorf("listens at %s", was)
	}
	there.seen(t, config.Outgoing, worldReflector, first)

	inside(t, "route", "del", "default", "dev", firstUp, "metric", "100")
	inside(t, "-6", "route", "del", "default", "dev", firstUp)
	if got := seenAs(t, proxy, worldReflector); got != second { // before anybody looked
		t.Errorf("outgoing is seen as %q", got)
	}
	if !ends(open) {
		t.Error("a tunnel goes on from the old address")
	}
	if now := there.proxy(t, config.Outgoing); hostOf(now) != second {
		t.Errorf("listens at %s", now)
	}
	there.seen(t, config.Outgoing, worldReflector, second)
	if _, err := net.Dial("tcp", was); err == nil {
		t.Error("it still listens at the old address")
	}

	inside(t, "route", "del", "default", "dev", nextUp, "metric", "101")
	f.pausedSoon(t, config.Outgoing, "no default route")
	there.soon(t, config.Outgoing, provider.StatePaused)
	wantAnswer(t, there.proxy(t, config.Outgoing), worldCanary, http.StatusBadGateway, proxyproto.FailureExitGone)
	inside(t, "route", "add", "default", "via", "10.71.0.1", "dev", firstUp, "metric", "100")
	f.soon(t, config.Outgoing, provider.StateRunning)
	f.seen(t, config.Outgoing, worldReflector, first)
	there.soon(t, config.Outgoing, provider.StateRunning)
	there.seen(t, config.Outgoing, worldReflector, first)
	nothingLeft(t)
}

// nobody is a user without any privilege.
const nobody = 65534

func unprivileged(t *testing.T) {
	// The binary's own folder is closed to other users.
	binary := filepath.Join("/tmp", filepath.Base(os.Args[0])+fmt.Sprint(os.Getpid()))
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(binary) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	as := exec.CommandContext(ctx, binary, "-test.run", "^TestAsNobody$", "-test.v")
	as.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	as.Dir = "/"
	if out, err := as.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestAsNobody") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAsNobody runs as a user without privileges, inside the namespace; elsewhere there is nothing to hold it to.
func TestAsNobody(t *testing.T) {
	if os.Getenv(onUplinks) == "" || os.Getuid() != nobody {
		return
	}
	f := newFleet(t, "  interfaces: ["+nextUp+"]\n")
	f.seen(t, nextUp, worldReflector, second)
}
