// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// ALPN is the protocol name in the TLS handshake.
const ALPN = "egress-agent/1"

// ErrWrongKey is a peer that does not hold the instance's control key.
var ErrWrongKey = errors.New("the peer does not hold this instance's control key")

// ServerTLS is the agent's side of the control channel.
func ServerTLS(key Key) (*tls.Config, error) {
	return tlsConfig(key.signer(useServer), key.signer(useClient))
}

// ClientTLS is the operator's side of the control channel.
func ClientTLS(key Key) (*tls.Config, error) {
	return tlsConfig(key.signer(useClient), key.signer(useServer))
}

// tlsConfig is one side: it shows own and accepts nothing but peer.
func tlsConfig(own, peer ed25519.PrivateKey) (*tls.Config, error) {
	certificate, err := selfSigned(own)
	if err != nil {
		return nil, err
	}
	pinned, ok := peer.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the peer's key is not ed25519")
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		NextProtos:   []string{ALPN},
		ClientAuth:   tls.RequireAnyClientCert,
		// The name and the chain of a self-signed certificate mean nothing:
		// verifyPeer compares the key itself, on both sides, also when a
		// session is resumed.
		InsecureSkipVerify:     true, //nolint:gosec // replaced by an exact pin of the public key
		VerifyConnection:       verifyPeer(pinned),
		SessionTicketsDisabled: true,
	}, nil
}

func verifyPeer(pinned ed25519.PublicKey) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if state.NegotiatedProtocol != ALPN {
			return fmt.Errorf("the peer does not speak %s", ALPN)
		}
		if len(state.PeerCertificates) != 1 {
			return ErrWrongKey
		}
		if public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !public.Equal(pinned) {
			return ErrWrongKey
		}
		return nil
	}
}

// selfSigned is a certificate that depends on the key alone: ed25519
// signatures are deterministic, and so is the template. It never expires, for
// a guest's clock may be wrong.
func selfSigned(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: ALPN},
		NotBefore:    time.Unix(0, 0).UTC(),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the control channel's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
