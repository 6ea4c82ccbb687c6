// SPDX-License-Identifier: Apache-2.0

// Package agentapi is what the operator and the agent in a guest say to each
// other: the agent's configuration file, which the seed carries, and the
// control requests that change credentials without a reboot.
//
// # Keys
//
// Each instance has a Key of 32 random bytes, which stands in its seed and in
// the operator's Secret and nowhere else. Both sides derive from it (HKDF) an
// ed25519 key for the server and one for the client, and from these two
// self-signed certificates, always the same. TLS 1.3 with both certificates,
// each side accepting exactly the other's public key: whoever lacks the Key
// can neither ask nor answer. The control channel is on the proxy's own port:
// its first byte tells it apart (package mux).
//
// # Requests
//
//	GET /v1/status       → Status
//	PUT /v1/credentials  CredentialsRequest → Status
//
// The credentials that a request replaces may stay valid for a while, which
// the agent measures by its own clock: CredentialsRequest.OverlapSeconds.
//
// # What outlives what
//
// The configuration file belongs to the seed: a boot may write it again at
// any time. Credentials that came by a control request are therefore kept in
// a state file beside it (FILE.state), together with a digest of the
// configuration that they replaced. As long as the configuration has this
// digest the state file's credentials are in force: a restart of the agent
// keeps them, and so does a reboot that puts the old seed's file back. A
// configuration with any other content is a new seed: its own credentials
// are in force, and the state file is removed.
package agentapi
