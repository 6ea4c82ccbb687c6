// SPDX-License-Identifier: Apache-2.0

//go:build live

package local

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Namespaces are named by these and the process that made them.
const localPrefix, worldPrefix = "egress-local", "egress-world"

// sweep removes what earlier runs left that were killed.
func sweep(t *testing.T) {
	t.Helper()
	for _, prefix := range []string{localPrefix, worldPrefix} {
		for _, pattern := range []string{"/run/netns/", "/etc/netns/"} {
			left, _ := filepath.Glob(pattern + prefix + "*")
			for _, path := range left {
				pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), prefix))
				if err != nil || syscall.Kill(pid, 0) == nil {
					continue
				}
				if pattern == "/run/netns/" {
					ip(t, "netns", "del", filepath.Base(path))
				} else {
					_ = os.RemoveAll(path)
				}
			}
		}
	}
}

// wire makes an uplink: a default route of its own for what is sent from its address, and one of lower rank for the rest.
func wire(t *testing.T, machine, behind, name string) {
	t.Helper()
	n, peer := name[2:], "r"+name[2:]
	network := "10.7" + string(n[0]+1)
	at := func(namespace string, args ...string) {
		t.Helper()
		ip(t, append([]string{"-n", namespace}, args...)...)
	}
	at(machine, "link", "add", name, "type", "veth", "peer", "name", peer, "netns", behind)
	at(behind, "addr", "add", network+".0.1/24", "dev", peer)
	at(behind, "link", "set", peer, "up")
	at(machine, "addr", "add", network+".0.2/24", "dev", name)
	at(machine, "link", "set", name, "up")
	route(t, machine, name)
	if name == firstUp {
		at(machine, "addr", "add", extra+"/24", "dev", name)
		at(behind, "addr", "add", "fd71::1/64", "dev", peer, "nodad")
		at(machine, "addr", "add", first6+"/64", "dev", name, "nodad")
		at(machine, "route", "add", "default", "via", "fd71::1", "dev", name)
	}
}

// route makes an uplink's default routes, after its address came.
func route(t *testing.T, machine, name string) {
	t.Helper()
	n := name[2:]
	network := "10.7" + string(n[0]+1)
	ip(t, "-n", machine, "route", "replace", "default", "via", network+".0.1", "dev", name, "metric", "10"+n)
	ip(t, "-n", machine, "route", "replace", "default", "via", network+".0.1", "dev", name, "table", "7"+n)
	rules := run(t, "ip", "-n", machine, "rule", "show")
	if !strings.Contains(rules, network+".0.2") {
		ip(t, "-n", machine, "rule", "add", "from", network+".0.2", "table", "7"+n)
	}
}

func startWorld(t *testing.T, behind string) {
	t.Helper()
	world := exec.Command("ip", "netns", "exec", behind, os.Args[0])
	world.Env = append(os.Environ(), asUplinks+"=1")
	world.Stderr = os.Stderr
	in, err := world.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := world.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = world.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("what is behind the uplinks does not start: %q, %v", line, err)
	}
}

func ip(t *testing.T, args ...string) { t.Helper(); run(t, "ip", args...) }

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
