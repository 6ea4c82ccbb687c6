// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// checkShape refuses what no host can make.
func checkShape(spec provider.InstanceSpec) *provider.Error {
	if wrong := spec.CheckMachine(); wrong != nil {
		return wrong
	}
	switch spec.Software {
	case provider.SoftwareAgent, provider.SoftwareCloudInit, provider.SoftwareNone:
		return nil
	}
	return &provider.Error{Kind: provider.Permanent, Message: fmt.Sprintf("software type %q is not known", spec.Software), Next: "set it to Agent, CloudInit or None"}
}
