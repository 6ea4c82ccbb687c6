// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// KeySize is the length of a Key in bytes.
const KeySize = 32

// Key is an instance's control key. It prints as "[redacted]"; its text form
// (MarshalText) is base64.
type Key [KeySize]byte

// NewKey makes a random key.
func NewKey() Key {
	var k Key
	// crypto/rand.Read never fails: it ends the process instead.
	_, _ = rand.Read(k[:])
	return k
}

// String hides the key.
func (k Key) String() string { return redacted }

// GoString hides the key.
func (k Key) GoString() string { return redacted }

const redacted = "[redacted]"

// MarshalText is the key in base64.
func (k Key) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, k[:]), nil
}

// UnmarshalText reads what MarshalText wrote. Its errors do not quote it.
func (k *Key) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return fmt.Errorf("a control key is base64, this is not")
	}
	if len(raw) != KeySize {
		return fmt.Errorf("a control key has %d bytes, this one has %d", KeySize, len(raw))
	}
	copy(k[:], raw)
	return nil
}

// IsZero says whether the key was never set.
func (k Key) IsZero() bool { return k == Key{} }

// Uses of a Key. A change is a change of protocol.
const (
	useServer      = "egress-agent/1 server key"
	useClient      = "egress-agent/1 client key"
	useFingerprint = "egress-agent/1 fingerprint key"
)

func (k Key) derive(use string) []byte {
	derived, err := hkdf.Key(sha256.New, k[:], nil, use, KeySize)
	if err != nil {
		// Only an absurd length fails.
		panic("agentapi: hkdf: " + err.Error())
	}
	return derived
}

func (k Key) signer(use string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(k.derive(use))
}

// Fingerprint identifies a set of credentials to holders of the key, and
// tells nobody else anything about it. The order and the times until which
// credentials are valid do not count.
func Fingerprint(key Key, credentials []Credential) string {
	sorted := slices.Clone(credentials)
	slices.SortFunc(sorted, func(a, b Credential) int {
		if c := strings.Compare(a.Username, b.Username); c != 0 {
			return c
		}
		return strings.Compare(a.Password, b.Password)
	})
	mac := hmac.New(sha256.New, key.derive(useFingerprint))
	for _, c := range sorted {
		for _, field := range []string{c.Username, c.Password} {
			// Lengths, so that no two sets are the same bytes.
			_ = binary.Write(mac, binary.BigEndian, uint32(len(field)))
			_, _ = mac.Write([]byte(field))
		}
	}
	return hex.EncodeToString(mac.Sum(nil))
}
