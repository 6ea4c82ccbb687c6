// SPDX-License-Identifier: Apache-2.0

package libvirttest

import (
	"testing"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

func TestContract(t *testing.T) {
	d := New(Config{})
	Contract(t, World{
		Connect:    func(*testing.T) libvirt.Backend { return d.Backend() },
		WriteFile:  func(_ *testing.T, name string, size int64) { d.WriteFile(name, size) },
		RemoveFile: func(_ *testing.T, name string) { d.RemoveFile(name) },
		Suspend:    func(_ *testing.T, domain string) { d.SetState(domain, statePaused, 1) },
		Talk: func(t *testing.T, domain string) {
			t.Helper()
			if !d.Say(domain, "SeaBIOS") {
				t.Error("nobody listens")
			}
		},
	})
}
