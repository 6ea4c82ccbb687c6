// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"path"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// instanceName is the name of a Proxy's instance on any host.
func instanceName(cluster, uid string) string {
	return "egress-" + cluster + "-sim-" + provider.CompactUID(uid)
}

// providerID is what status.providerID shows.
func providerID(host, name string) string { return "hosts/" + host + "/instances/" + name }

// matches says whether a pattern is for a name; an empty one is for all.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || err == nil && ok
}

// check refuses a rule that cannot be.
func (r Rule) check() error {
	known := false
	for _, name := range config.FaultNames() {
		known = known || name == r.Fault
	}
	if !known {
		return fmt.Errorf("there is no fault %q; there are: %s", r.Fault, strings.Join(config.FaultNames(), ", "))
	}
	for _, pattern := range []string{r.Hosts, r.Proxies} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q is no name and no pattern such as shop-*", pattern)
		}
	}
	return nil
}
