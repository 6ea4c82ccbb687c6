// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// seed builds the seed in memory. Only the spec can make it fail.
func (c *creation) seed() ([]byte, error) {
	s := cloudinit.SeedSpec{UID: c.uid, Name: c.spec.Name, Software: cloudinit.Software(c.spec.Software)}
	switch c.spec.Software {
	case provider.SoftwareAgent:
		config, err := c.agentConfig().Marshal()
		if err != nil {
			return nil, fmt.Errorf("the agent's configuration: %w", err)
		}
		s.AgentConfig = config
	case provider.SoftwareCloudInit:
		s.UserData = []byte(c.spec.UserData.Reveal())
	}
	return cloudinit.Seed(s)
}

func (c *creation) agentConfig() agentapi.Config {
	config := agentapi.Config{
		Version: agentapi.ConfigVersion, ListenPort: c.spec.Port,
		Credentials: []agentapi.Credential{{
			Username: c.spec.Credentials.Username, Password: c.spec.Credentials.Password.Reveal(),
		}},
		Destinations: agentapi.Destinations{Allow: c.entry.Destinations.Prefixes(), Reflectors: c.reflectors},
	}
	// A key of the wrong length stays zero, which Marshal refuses.
	if key := c.spec.ControlKey.Reveal(); len(key) == len(config.ControlKey) {
		copy(config.ControlKey[:], key)
	}
	return config
}
