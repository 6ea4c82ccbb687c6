// SPDX-License-Identifier: Apache-2.0

package local

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/providertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asUplinks) != "" {
		serveUplinks()
	}
	goleak.VerifyTestMain(m)
}

func TestProviderContract(t *testing.T) {
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.System {
		network, addresses := block()
		entry, port := entryOf(t, "  addresses: ["+network+"]\n"), freePort(t)
		again := func(t *testing.T) provider.Provider { return start(t, Options{Entry: entry}) }
		return providertest.System{
			Provider: again(t), Restart: again, Ephemeral: true, NoMachines: true, Host: addresses[0], MoreHosts: addresses[1:],
			Spec: func(uid string) provider.InstanceSpec { return specOf(addresses[0], uid, port) },
		}
	}})
}
