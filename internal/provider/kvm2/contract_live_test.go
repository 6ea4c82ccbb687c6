// SPDX-License-Identifier: Apache-2.0

//go:build live

package kvm2_test

import (
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
	entry := liveEntry(t)
	backends := kvm2.Backends(entry.Credentials)
	libvirttest.Contract(t, func(*testing.T) libvirt.Backend { return backends(entry.Hosts[0]) })
}

func TestProviderContract(t *testing.T) {
	entry := liveEntry(t)
	providertest.Run(t, libvirttest.Harness(func(*testing.T) libvirt.Options {
		return libvirt.Options{Entry: entry, Backend: kvm2.Backends(entry.Credentials)}
	}))
}
