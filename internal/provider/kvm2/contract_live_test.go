// SPDX-License-Identifier: Apache-2.0

//go:build live

package kvm2_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/providertest"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// contractHost is a host of the contract suites' own.
const contractHost = 3

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// liveEntry is an entry with one real host, whose image halts in its boot sector: instances start at once and do nothing.
func liveEntry(t *testing.T) config.Entry {
	t.Helper()
	host := kvmhost.Up(t, contractHost)
	_, _, empty := kvmhost.Images(t)
	entry := lab.EntryOf(host, "kvm2-contract", "empty", config.Image{URL: "file://" + empty})
	entry.MaxImageBytes = 1 << 30
	return entry
}

// The same suites pass over the libvirt in memory: see package libvirttest.

func TestBackendContract(t *testing.T) {
	entry, host := liveEntry(t), kvmhost.Up(t, contractHost)
	backends := kvm2.Backends(entry.Credentials)
	pool := filepath.Join(host.Dir, "lib", "images")
	virsh := func(t *testing.T, args ...string) {
		t.Helper()
		if _, err := host.Virsh(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	libvirttest.Contract(t, libvirttest.World{
		Connect: func(*testing.T) libvirt.Backend { return backends(entry.Hosts[0]) },
		WriteFile: func(t *testing.T, name string, size int64) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(pool, name), bytes.Repeat([]byte("x"), int(size)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		RemoveFile: func(t *testing.T, name string) {
			t.Helper()
			if err := os.Remove(filepath.Join(pool, name)); err != nil {
				t.Fatal(err)
			}
		},
		Suspend: func(t *testing.T, domain string) { t.Helper(); virsh(t, "suspend", domain) },
		Talk:    func(t *testing.T, domain string) { t.Helper(); virsh(t, "reset", domain) },
	})
}

func TestProviderContract(t *testing.T) {
	entry := liveEntry(t)
	providertest.Run(t, libvirttest.Harness(func(*testing.T) libvirt.Options {
		return libvirt.Options{Entry: entry, Backend: kvm2.Backends(entry.Credentials)}
	}))
}
