// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/image"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func caps(firmware ...string) *libvirtxml.DomainCaps {
	return &libvirtxml.DomainCaps{OS: &libvirtxml.DomainCapsOS{Enums: []libvirtxml.DomainCapsEnum{{Name: "firmware", Values: firmware}}}}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		need    need
		offer   offer
		virt    string
		missing string // a part of it; empty when nothing is
	}{
		{name: "KVM", need: need{Arch: archX86}, offer: offer{Arch: archX86, KVM: caps(), TCG: caps()}, virt: virtKVM},
		{name: "no KVM is named", need: need{Arch: archX86}, offer: offer{Arch: archX86, TCG: caps()}, virt: virtKVM, missing: "KVM"},
		{name: "emulation only where it is allowed", need: need{Arch: archX86, Emulation: true}, offer: offer{Arch: archX86, TCG: caps()}, virt: virtTCG},
		{name: "KVM is preferred to emulation", need: need{Arch: archX86, Emulation: true}, offer: offer{Arch: archX86, KVM: caps(), TCG: caps()}, virt: virtKVM},
		{name: "no QEMU is named", need: need{Arch: archX86, Emulation: true}, offer: offer{Arch: archX86}, virt: virtKVM, missing: "QEMU"},
		{name: "X16: an architecture that the host has not", need: need{Arch: archARM}, offer: offer{Arch: archX86, KVM: caps("efi")}, virt: virtKVM, missing: "aarch64"},
		{name: "X16: EFI that the host has not", need: need{Arch: archX86, EFI: true}, offer: offer{Arch: archX86, KVM: caps("bios")}, virt: virtKVM, missing: "EFI"},
		{name: "X16: EFI", need: need{Arch: archX86, EFI: true}, offer: offer{Arch: archX86, KVM: caps("bios", "efi")}, virt: virtKVM},
		{name: "aarch64 boots by EFI only", need: need{Arch: archARM}, offer: offer{Arch: archARM, KVM: caps()}, virt: virtKVM, missing: "EFI"},
		{name: "an architecture that nobody has", need: need{Arch: "pdp11"}, offer: offer{Arch: archX86}, virt: virtKVM, missing: "pdp11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, missing := match(c.need, c.offer)
			if g.VirtType != c.virt || (len(missing) > 0) != (c.missing != "") || !strings.Contains(strings.Join(missing, ";"), c.missing) {
				t.Errorf("got %+v, %q", g, missing)
			}
		})
	}
}

func TestPoolMissing(t *testing.T) {
	for kind, good := range map[string]bool{"dir": true, "fs": true, "netfs": true, "logical": false, "rbd": false, "zfs": false, "iscsi": false, "disk": false, "": false} {
		t.Run("H4e: pool type "+kind, func(t *testing.T) {
			if missing := poolMissing("p", PoolInfo{Type: kind, Active: true}); (len(missing) == 0) != good {
				t.Errorf("%q: %q", kind, missing)
			}
		})
	}
	if missing := poolMissing("p", PoolInfo{Type: "dir"}); len(missing) != 1 || !strings.Contains(missing[0], "pool-start p") {
		t.Errorf("inactive: %q", missing)
	}
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		need, available, reserve, inFlight int64
		fits                               bool
	}{
		{10, 10, 0, 0, true}, {11, 10, 0, 0, false}, {10, 12, 2, 0, true}, {10, 12, 2, 1, false}, {1, 10, 20, 0, false}, {0, 0, 0, 0, true},
		{1, math.MaxInt64, math.MaxInt64, math.MaxInt64, false}, {math.MaxInt64, math.MaxInt64, 0, 0, true}, {1, -1, -1, -1, false},
	} {
		if got := roomFor(c.need, c.available, c.reserve, c.inFlight) == nil; got != c.fits {
			t.Errorf("%+v: fits %t", c, got)
		}
	}
	t.Run("what is in flight counts until it is given back, once", func(t *testing.T) {
		var r reservations
		release, lacking := r.take(6, 10, 0)
		if lacking != nil {
			t.Fatal(lacking)
		}
		if _, lacking := r.take(6, 10, 0); lacking == nil || !strings.Contains(lacking.message("p"), "6 bytes are promised") {
			t.Errorf("got %+v", lacking)
		}
		release()
		release()
		if _, lacking := r.take(10, 10, 0); lacking != nil {
			t.Errorf("after the release: %+v", lacking)
		}
		if _, lacking := r.take(1, 10, 0); lacking == nil {
			t.Error("a release that was called twice gave back what it did not have")
		}
	})
}

func FuzzRoom(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3), int64(4))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64), int64(1))
	f.Fuzz(func(t *testing.T, need, available, reserve, inFlight int64) {
		fits := roomFor(need, available, reserve, inFlight) == nil
		if fits && need > 0 && need > available {
			t.Errorf("%d fits into %d", need, available)
		}
		if fits && reserve > 0 && inFlight > 0 && need > 0 && uint64(need)+uint64(reserve)+uint64(inFlight) > uint64(max(available, 0)) {
			t.Errorf("%d fits into %d with %d and %d taken", need, available, reserve, inFlight)
		}
		if b := bytesOf(need); b < 0 || (need > 0 && b < need) {
			t.Errorf("%d GiB are %d bytes", need, b)
		}
	})
}

func TestArithmetic(t *testing.T) {
	t.Run("L20: absurd sizes do not wrap", func(t *testing.T) {
		for gibs, want := range map[int64]int64{0: 0, -5: 0, 1: gib, 4096: 4096 * gib, math.MaxInt64: math.MaxInt64, math.MaxInt64 / 2: math.MaxInt64} {
			if got := bytesOf(gibs); got != want {
				t.Errorf("%d GiB: %d bytes, want %d", gibs, got, want)
			}
		}
		if roomFor(math.MaxInt64, math.MaxInt64, 1, math.MaxInt64) == nil || roomFor(1, 0, math.MaxInt64, math.MaxInt64) == nil {
			t.Error("wrapped into room")
		}
	})
	for field, change := range map[string]func(*provider.InstanceSpec){
		"L11: vcpus 0": func(s *provider.InstanceSpec) { s.VCPUs = 0 }, "L11: vcpus -1": func(s *provider.InstanceSpec) { s.VCPUs = -1 },
		"L11: memoryMiB 0": func(s *provider.InstanceSpec) { s.MemoryMiB = 0 }, "L20: memoryMiB": func(s *provider.InstanceSpec) { s.MemoryMiB = math.MaxInt },
		"L20: vcpus": func(s *provider.InstanceSpec) { s.VCPUs = math.MaxInt }, "L20: diskSizeGb": func(s *provider.InstanceSpec) { s.DiskSizeGiB = math.MaxInt },
		"port": func(s *provider.InstanceSpec) { s.Port = 65_536 }, "software": func(s *provider.InstanceSpec) { s.Software = "Else" },
	} {
		t.Run(field, func(t *testing.T) {
			s := provider.InstanceSpec{Shape: provider.Shape{VCPUs: 1, MemoryMiB: 64, DiskSizeGiB: 1, Port: 1, Software: provider.SoftwareNone}}
			if err := checkShape(s); err != nil {
				t.Fatal(err)
			}
			change(&s)
			if err := checkShape(s); err == nil || err.Kind != provider.Permanent || err.Next == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStateOf(t *testing.T) {
	for _, c := range []struct {
		state, reason int
		want          provider.State
		why           string
		remedy        remedy
	}{
		{1, 1, provider.StateRunning, "", remedyNone},
		{2, 0, provider.StateRunning, "", remedyNone},
		{3, 0, provider.StatePaused, "paused: unknown", remedyWait},
		{3, 1, provider.StatePaused, "paused: by a user", remedyWait},
		{3, 2, provider.StatePaused, "paused: migration", remedyWait},
		{3, 3, provider.StatePaused, "paused: being saved", remedyWait},
		{3, 5, provider.StatePaused, "paused: I/O error", remedyResume},
		{3, 6, provider.StateCrashed, "paused: watchdog", remedyReplace},
		{3, 7, provider.StatePaused, "paused: from a snapshot", remedyResume},
		{3, 9, provider.StatePaused, "paused: being snapshotted", remedyWait},
		{3, 10, provider.StateCrashed, "paused: crashed", remedyReplace},
		{3, 11, provider.StatePaused, "paused: starting", remedyWait},
		{3, 13, provider.StatePaused, "paused: post-copy migration failed", remedyWait},
		{3, 14, provider.StatePaused, "paused: API error", remedyResume},
		{3, 99, provider.StatePaused, "paused: reason 99", remedyWait},
		{4, 1, provider.StateRunning, "shutting down", remedyWait},
		{5, 1, provider.StateStopped, "stopped: shut down", remedyStart},
		{5, 3, provider.StateStopped, "stopped: crashed", remedyStart},
		{6, 1, provider.StateCrashed, "crashed: panicked", remedyReplace},
		{7, 0, provider.StatePaused, "suspended by the guest", remedyResume},
		{0, 0, provider.StatePaused, "state 0, reason 0, which this version does not know", remedyWait},
		{42, -1, provider.StatePaused, "state 42, reason -1, which this version does not know", remedyWait},
	} {
		got, why := StateOf(c.state, c.reason)
		if got != c.want || why != c.why || remedyFor(c.state, c.reason) != c.remedy {
			t.Errorf("%d/%d: %s %q, remedy %d", c.state, c.reason, got, why, remedyFor(c.state, c.reason))
		}
	}
}

func TestAddressesOf(t *testing.T) {
	parse := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	const mac = "52:54:00:00:00:01"
	// M14 in its unit part: docker0 and friends are not our NIC.
	got := addressesOf(mac, []Interface{
		{Name: "lo", Addresses: parse("127.0.0.1", "::1")},
		{Name: "docker0", MAC: "02:42:00:00:00:01", Addresses: parse("172.17.0.1")},
		{Name: "tailscale0", Addresses: parse("100.64.0.1")},
		{Name: "eth0", MAC: strings.ToUpper(mac), Addresses: parse("fd00::5", "fe80::1", "2001:db8::5", "169.254.0.9", "::ffff:192.0.2.7", "192.0.2.7", "127.0.0.2", "224.0.0.1")},
	})
	if want := parse("192.0.2.7", "2001:db8::5", "fd00::5"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := addressesOf(mac, []Interface{{Name: "eth0", Addresses: parse("192.0.2.9")}}); got != nil {
		t.Errorf("an interface without a MAC was believed: %v", got)
	}
}

func TestTranslate(t *testing.T) {
	daemon := func(code int, text string) error { return &DaemonError{Code: code, Message: text} }
	for _, c := range []struct {
		name   string
		err    error
		kind   provider.Kind
		reason string
	}{
		{"no domain", daemon(42, "Domain not found"), provider.NotFound, ""},
		{"no support", daemon(3, "this function is not supported"), provider.Permanent, ""},
		{"invalid argument", daemon(8, "invalid argument"), provider.Permanent, ""},
		{"XML", daemon(27, "XML error"), provider.Permanent, ""},
		{"configuration", daemon(67, "unsupported configuration"), provider.Permanent, ""},
		{"schema", daemon(92, "XML document failed to validate"), provider.Permanent, ""},
		{"no network", daemon(43, "Network not found"), provider.Permanent, provider.HostIncapable},
		{"no pool", daemon(49, "Storage pool not found"), provider.Permanent, provider.HostIncapable},
		{"authentication", daemon(45, "authentication failed"), provider.Unauthorized, provider.HostUnauthorized},
		{"access denied", daemon(88, "access denied"), provider.Unauthorized, provider.HostUnauthorized},
		{"RPC", daemon(39, "Cannot write data: Broken pipe"), provider.Transient, ""},
		{"busy", daemon(87, "resource busy"), provider.Transient, ""},
		{"agent", daemon(86, "Guest agent is not responding"), provider.Transient, ""},
		{"an unknown code", daemon(12345, "?"), provider.Transient, ""},
		{"jobs", daemon(1, "pool 'default' has asynchronous jobs running."), provider.Transient, ""},
		{"qemu exited", daemon(1, "process exited while connecting to monitor"), provider.Transient, ""},
		{"no memory", daemon(1, "cannot set up guest memory 'pc.ram': Cannot allocate memory"), provider.Capacity, ""},
		{"ENOSPC", daemon(38, "cannot write to stream: No space left on device"), provider.Capacity, ""},
		{"no room for a volume", daemon(9, "Not enough space left in storage pool"), provider.Capacity, ""},
		{"name taken", daemon(9, "operation failed: domain 'x' already exists with uuid 1"), provider.Conflict, ""},
		{"UUID taken", daemon(9, "operation failed: domain 'y' is already defined with uuid 1"), provider.Conflict, ""},
		{"no bridge", daemon(38, "Cannot get interface MTU on 'br9': No such device"), provider.Permanent, provider.HostIncapable},
		{"a missing file", daemon(38, "Cannot access storage file '/x': No such file or directory"), provider.Transient, ""},
		{"unreachable", &HostError{Reason: provider.HostUnreachable, Message: "no route"}, provider.Transient, provider.HostUnreachable},
		{"unauthorized", fmt.Errorf("x: %w", &HostError{Reason: provider.HostUnauthorized, Message: "revoked"}), provider.Unauthorized, provider.HostUnauthorized},
		{"set-up", &HostError{Reason: provider.HostIncapable, Message: "forwarding refused"}, provider.Permanent, provider.HostIncapable},
		{"deadline", context.DeadlineExceeded, provider.Transient, provider.HostTimeout},
		{"cancelled", context.Canceled, provider.Transient, ""},
		{"anything", errors.New("x"), provider.Transient, ""},
		{"image", &image.Error{Kind: image.Permanent, Message: "m", Next: "n"}, provider.Permanent, ""},
		{"image, transient", &image.Error{Message: "m"}, provider.Transient, ""},
		{"already translated", fmt.Errorf("x: %w", &provider.Error{Kind: provider.Capacity}), provider.Capacity, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := translate("kvm-1", "domain x", "doing it", c.err)
			if got.Kind != c.kind || got.Reason != c.reason {
				t.Errorf("got %v %q: %v", got.Kind, got.Reason, got)
			}
		})
	}
	t.Run("a long text of the host's is cut, and kept on one line", func(t *testing.T) {
		got := translate("h", "o", "d", daemon(1, strings.Repeat("é\n", 5000)))
		if n := len([]rune(got.Message)); n > maxDaemonText+100 || strings.Contains(got.Message, "\n") {
			t.Errorf("%d characters", n)
		}
	})
}

func TestResolveImage(t *testing.T) {
	entry := config.Entry{
		Name: "home", DefaultImage: "debian", AllowURLImages: []string{"images.example.org"},
		Images: map[string]config.Image{"debian": {URL: "https://a/d"}, "alpine": {URL: "https://a/a", Arch: archARM}},
	}
	closed := entry
	closed.AllowURLImages = nil
	pin := strings.Repeat("0", 64)
	for _, c := range []struct {
		name  string
		entry config.Entry
		image provider.Image
		url   string
		says  string // of the error
	}{
		{"the default", entry, provider.Image{}, "https://a/d", ""},
		{"by key", entry, provider.Image{Name: "alpine"}, "https://a/a", ""},
		{"an unknown key names those that exist", entry, provider.Image{Name: "x"}, "", "alpine, debian"},
		{"by URL", entry, provider.Image{URL: "https://images.example.org/x", SHA256: pin}, "https://images.example.org/x", ""},
		{"L8: a URL is no key", entry, provider.Image{Name: "https://images.example.org/x"}, "", "alpine, debian"},
		{"URLs are off by default", closed, provider.Image{URL: "https://images.example.org/x", SHA256: pin}, "", "takes no images by URL"},
		{"another host", entry, provider.Image{URL: "https://evil.example.org/x", SHA256: pin}, "", "images.example.org"},
		{"no digest", entry, provider.Image{URL: "https://images.example.org/x"}, "", "sha256"},
		{"L24: userinfo is refused, and not shown", entry, provider.Image{URL: "https://me:secret@images.example.org/x", SHA256: pin}, "", "without user and password"},
		{"a file of the operator's", entry, provider.Image{URL: "file:///etc/shadow", SHA256: pin}, "", "no URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := resolveImage(c.entry, c.image)
			if c.says == "" {
				if err != nil || got.URL != c.url || got.Arch == "" {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err == nil || err.Kind != provider.Permanent || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUntrustedImagesComeFromPublicAddresses(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:80": false, "169.254.169.254:80": false, "10.0.0.1:443": false, "[::1]:80": false, "[fe80::1]:80": false, "[::ffff:10.0.0.1]:80": false,
		"8.8.8.8:443": true, "nonsense": false,
	} {
		if err := publicOnly(t.Context(), "tcp", address, nil); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		} else if err != nil && image.KindOf(err) != image.Permanent {
			t.Errorf("%s: kind %v", address, image.KindOf(err))
		}
	}
}
