// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
)

// reservedDescriptors are for pipes, kept connections to origins, files.
const reservedDescriptors = 512

// BoundByDescriptors returns limits whose bound on connections lets servers,
// at least 1, share what the system lets this process open: two descriptors a
// tunnel, and one for a client that is silent yet. The fewer it says.
func BoundByDescriptors(limits agentapi.Limits, servers int, logger *slog.Logger) agentapi.Limits {
	limits = limits.WithDefaults()
	descriptors, ok := descriptorLimit()
	if !ok {
		return limits
	}
	if most := connectionsWith(descriptors, servers); limits.MaxConnections > most {
		logger.Warn("fewer connections than configured: the process may not open more files (raise LimitNOFILE)",
			"configured", limits.MaxConnections, "bound", most, "descriptors", descriptors)
		limits.MaxConnections = most
	}
	return limits
}

func connectionsWith(descriptors uint64, servers int) int {
	return max(1, int(min(descriptors, 1<<30)-min(descriptors, reservedDescriptors))/3/servers)
}
