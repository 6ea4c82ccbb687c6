//go:build live

package kvmhost

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Hosts of this test's own: it cuts them and takes them down.
const tinyHost, cloudHost = 208, 209

func TestMain(m *testing.M) {
	if os.Getenv(untilKilled) != "" {
		os.Exit(holdAGuest())
	}
	goleak.VerifyTestMain(m)
}

// Both tests run side by side, each on a host of its own.

func TestTinyGuest(t *testing.T) {
	t.Parallel()
	Require(t)
	image, _, empty := Images(t)
	agent := buildAgent(t)
	host := upAlone(t, tinyHost)

	guest := startGuest(t, host, "tiny", image, bios, agent, reflector(t, host), nil)
	address := exercise(t, guest)
	t.Run("daemons and wire are cut and mended", func(t *testing.T) { cutAndMend(t, guest, address) })
	t.Run("a server inside the host is reached by the guest", func(t *testing.T) { serveInside(t, guest) })
	shutDown(t, guest)
	t.Run("it boots by EFI too", func(t *testing.T) {
		guest := startGuest(t, host, "tiny-efi", image, efi, agent, reflector(t, host), nil)
		exercise(t, guest)
		shutDown(t, guest)
	})
	t.Run("the empty image runs and halts", func(t *testing.T) {
		guest := startGuest(t, host, "empty", empty, bios, agent, "nowhere", nil)
		if state := guest.state(t.Context()); state != "running" {
			t.Errorf("state %q", state)
		}
	})
	t.Run("down leaves nothing", func(t *testing.T) { downWhole(t, host) })
}

func TestCloudGuest(t *testing.T) {
	t.Parallel()
	Require(t)
	_, image, _ := Images(t)
	agent := buildAgent(t)
	host := upAlone(t, cloudHost)

	guest := startGuest(t, host, "cloud", image, bios, agent, reflector(t, host), map[string]string{
		"vendor-data": "#!/bin/sh\necho vendor > /run/vendor-ran\n",
	})
	exercise(t, guest)
	guest.await(t, "cloud-init is done", func(ctx context.Context) bool {
		_, err := guest.run(ctx, "/bin/cat", "/var/lib/cloud/instance/boot-finished")
		return err == nil
	})
	if out, err := guest.run(t.Context(), "/bin/cat", "/run/vendor-ran"); err != nil || out != "vendor\n" {
		t.Errorf("the vendor data's script: %q, %v", out, err)
	}
	shutDown(t, guest)
	t.Run("down leaves nothing", func(t *testing.T) { downWhole(t, host) })
}

// upAlone brings up a host that starts from nothing and ends with the test.
func upAlone(t *testing.T, n int) *Host {
	t.Helper()
	left := &Host{Number: n}
	if err := left.Down(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := left.Down(ctx, true); err != nil {
			t.Error(err)
		}
	})
	host := Up(t, n)
	if again := Up(t, n); *again != *host {
		t.Errorf("up again: %+v, want %+v", again, host)
	}
	return host
}

// exercise follows a guest from its start to an answer through its agent, and returns its address.
func exercise(t *testing.T, guest *guest) string {
	t.Helper()
	ctx := t.Context()
	guest.await(t, "guest agent answers", func(ctx context.Context) bool {
		return guest.ask(ctx, "guest-ping", nil, nil) == nil
	})
	var address string
	guest.await(t, "address by guest agent", func(ctx context.Context) bool {
		address = guest.address(ctx, "agent")
		return address != ""
	})
	if lease := guest.address(ctx, "lease"); lease != address {
		t.Errorf("address by lease %q, by guest agent %q", lease, address)
	}
	guest.await(t, "runcmd done", func(ctx context.Context) bool {
		out, err := guest.run(ctx, "/bin/cat", "/run/egress/string-item", "/run/egress/encoded")
		return err == nil && out == "two words\nfrom base64"
	})
	guest.await(t, "the program of the agent volume reaches the reflector", func(ctx context.Context) bool {
		seen, err := guest.seenAs(ctx, address)
		return err == nil && seen == address
	})
	if name, err := guest.run(ctx, "/bin/uname", "-n"); err != nil || strings.TrimSpace(name) != guest.name {
		t.Errorf("host name %q, %v", name, err)
	}
	if servers, err := guest.run(ctx, "/bin/cat", "/etc/resolv.conf"); err != nil || !strings.Contains(servers, "nameserver") {
		t.Errorf("resolv.conf %q, %v", servers, err)
	}
	return address
}

func cutAndMend(t *testing.T, guest *guest, address string) {
	ctx, host := t.Context(), guest.host
	if err := host.RestartLibvirtd(ctx); err != nil {
		t.Fatal(err)
	}
	if state := guest.state(ctx); state != "running" {
		t.Errorf("after libvirtd's restart: %s", state)
	}
	for _, part := range []Part{Libvirtd, SSHD, Network} {
		if err := host.Cut(ctx, part); err != nil {
			t.Fatal(err)
		}
		if part == Libvirtd {
			if _, err := host.Virsh(ctx, "list"); err == nil {
				t.Errorf("virsh works without libvirtd")
			}
		} else if connection, err := net.DialTimeout("tcp", host.SSHAddress, 500*time.Millisecond); err == nil {
			connection.Close()
			t.Errorf("sshd answers with %s cut", part)
		}
		if err := host.Mend(ctx, part); err != nil {
			t.Fatal(err)
		}
		if seen, err := guest.seenAs(ctx, address); err != nil || seen != address {
			t.Errorf("after %s was mended: %q, %v", part, seen, err)
		}
		if state := guest.state(ctx); state != "running" {
			t.Errorf("after %s was mended: %s", part, state)
		}
	}
}

func serveInside(t *testing.T, guest *guest) {
	gateway := "10.88." + strconv.Itoa(guest.host.Number) + ".1"
	listener, err := guest.host.Listen(t.Context(), gateway+":8123")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			close(accepted)
			return
		}
		client, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
		connection.Close()
		accepted <- client
	}()
	_, err = guest.run(t.Context(), "/bin/sh", "-c", "nc "+gateway+" 8123 </dev/null || true")
	listener.Close()
	client := <-accepted
	if err != nil || !strings.HasPrefix(client, "10.88.") {
		t.Errorf("client %q, %v", client, err)
	}
}

func shutDown(t *testing.T, guest *guest) {
	t.Helper()
	if _, err := guest.host.Virsh(t.Context(), "shutdown", guest.name, "--mode", "acpi"); err != nil {
		t.Fatal(err)
	}
	guest.await(t, "shut off by ACPI", func(ctx context.Context) bool { return guest.state(ctx) == "shut off" })
}

func running(pid string) bool {
	_, err := os.Stat(filepath.Join("/proc", pid))
	return err == nil
}

func downWhole(t *testing.T, host *Host) {
	pids := processes(t, host)
	if err := host.Down(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, host, pids)
}

// processes of a host that is up.
func processes(t *testing.T, host *Host) []string {
	t.Helper()
	pids := strings.Fields(run(t, "ip", "netns", "pids", "egress-host"+strconv.Itoa(host.Number)))
	if len(pids) < 4 {
		t.Fatalf("processes of the host: %v", pids)
	}
	return pids
}

// nothingLeft looks for all that a host consists of.
func nothingLeft(t *testing.T, host *Host, pids []string) {
	t.Helper()
	number := strconv.Itoa(host.Number)
	for _, pid := range pids {
		// One that only entered the namespace from outside, a command's shell say, ends by itself, a moment after.
		for deadline := time.Now().Add(10 * time.Second); running(pid); {
			if time.Now().After(deadline) {
				command, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
				t.Errorf("process %s is left: %q", pid, command)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"namespaces": run(t, "ip", "netns", "list"),
		"links":      run(t, "ip", "-o", "link"),
		"routes":     run(t, "ip", "route"),
		"mounts":     string(mounts),
	} {
		for _, ours := range []string{"egress-host" + number, "veth-egress" + number, "10.88." + number + ".", "10.77." + number + ".", host.Dir} {
			if strings.Contains(text, ours) {
				t.Errorf("%s: %s is left:\n%s", where, ours, text)
			}
		}
	}
	if _, err := os.Stat(host.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is left", host.Dir)
	}
}
