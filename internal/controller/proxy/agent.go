// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// AgentGuest is a Guest over our agent's control channel.
type AgentGuest struct{}

// Ensure reads what the agent has, and replaces it only where it is something else.
func (AgentGuest) Ensure(ctx context.Context, agent netip.AddrPort, secret provider.Secret, credentials provider.Credentials) (string, error) {
	var key agentapi.Key
	if copy(key[:], secret.Reveal()) != len(key) {
		return "", errors.New("the control key has another length than the agent's")
	}
	client := agentapi.Client{Address: agent.String(), Key: key}
	wanted := []agentapi.Credential{{Username: credentials.Username, Password: credentials.Password.Reveal()}}
	status, err := client.Status(ctx)
	if err == nil && status.CredentialsFingerprint != agentapi.Fingerprint(key, wanted) {
		status, err = client.PutCredentials(ctx, wanted)
	}
	return status.Version, err
}
