// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// AgentGuest is a Guest over our agent's control channel.
type AgentGuest struct{}

// Ensure reads what the agent has, and replaces it only where it is something else, or where the credentials before are to end now.
func (AgentGuest) Ensure(ctx context.Context, agent netip.AddrPort, secret provider.Secret, credentials provider.Credentials, overlap time.Duration) (GuestState, error) {
	var key agentapi.Key
	if copy(key[:], secret.Reveal()) != len(key) {
		return GuestState{}, errors.New("the control key has another length than the agent's")
	}
	client := agentapi.Client{Address: agent.String(), Key: key}
	wanted := []agentapi.Credential{{Username: credentials.Username, Password: credentials.Password.Reveal()}}
	status, err := client.Status(ctx)
	changed := err == nil && (status.Current() != agentapi.Fingerprint(key, wanted) || overlap == 0 && status.PreviousSeconds > 0)
	if changed {
		if status.ProtocolVersion < agentapi.OverlapVersion {
			overlap = 0
		}
		status, err = client.RotateCredentials(ctx, wanted, overlap)
	}
	return GuestState{Version: status.Version, Changed: changed, Previous: status.Previous()}, err
}
