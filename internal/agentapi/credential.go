// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// MaxCredentials is how many credentials may be in force at one time.
const MaxCredentials = 8

// Credential is one username and password. It prints without the password.
type Credential struct {
	Username string `json:"username"`
	Password string `json:"password"`
	// NotAfter is when it ceases to be valid; nil is never. An old credential
	// that overlaps with its successor has one.
	NotAfter *time.Time `json:"notAfter,omitempty"`
}

// String hides the password.
func (c Credential) String() string { return c.Username + ":" + redacted }

// GoString hides the password.
func (c Credential) GoString() string { return c.String() }

func (c Credential) validAt(now time.Time) bool {
	return c.NotAfter == nil || now.Before(*c.NotAfter)
}

// ActiveAt returns the credentials that are valid at that time.
func ActiveAt(credentials []Credential, now time.Time) []Credential {
	var active []Credential
	for _, c := range credentials {
		if c.validAt(now) {
			active = append(active, c)
		}
	}
	return active
}

// ValidateCredentials says everything that is wrong with a set; no error
// quotes a password. That all have expired is no error here.
func ValidateCredentials(credentials []Credential) error {
	var errs []error
	if n := len(credentials); n < 1 || n > MaxCredentials {
		errs = append(errs, fmt.Errorf("credentials: there must be 1 to %d, there are %d", MaxCredentials, n))
	}
	type pair struct{ username, password string }
	seen := map[pair]int{}
	for i, c := range credentials {
		if err := validateCredential(c); err != nil {
			errs = append(errs, fmt.Errorf("credentials[%d]: %w", i, err))
		}
		p := pair{c.Username, c.Password}
		if first, ok := seen[p]; ok {
			errs = append(errs, fmt.Errorf("credentials[%d]: the same as credentials[%d]", i, first))
			continue
		}
		seen[p] = i
	}
	return errors.Join(errs...)
}

func validateCredential(c Credential) error {
	var errs []error
	for _, field := range []struct{ name, value string }{{"username", c.Username}, {"password", c.Password}} {
		if n := len(field.value); n < 1 || n > proxyproto.MaxCredentialLength {
			errs = append(errs, fmt.Errorf("the %s must have 1 to %d bytes (SOCKS5 carries no more), it has %d", field.name, proxyproto.MaxCredentialLength, n))
		}
		for i := range len(field.value) {
			if b := field.value[i]; b < 0x20 || b == 0x7f {
				errs = append(errs, fmt.Errorf("the %s contains a control character", field.name))
				break
			}
		}
	}
	for i := range len(c.Username) {
		if c.Username[i] == ':' {
			errs = append(errs, errors.New("the username contains a colon, which HTTP cannot carry"))
			break
		}
	}
	return errors.Join(errs...)
}

// Credentials are the set in force: a proxyproto.Authenticator whose set can
// be replaced while it is used.
type Credentials struct {
	now func() time.Time
	// blind makes digests that mean nothing outside this process.
	blind [sha256.Size]byte
	set   atomic.Pointer[credentialSet]
}

type credentialSet struct {
	credentials []Credential
	digests     [][sha256.Size]byte
}

// NewCredentials makes an empty set, which lets nobody in; now is time.Now
// but in tests.
func NewCredentials(now func() time.Time) *Credentials {
	c := &Credentials{now: now}
	_, _ = rand.Read(c.blind[:])
	c.Replace(nil)
	return c
}

// Replace puts another set in force at once.
func (c *Credentials) Replace(credentials []Credential) {
	set := &credentialSet{credentials: credentials}
	for _, credential := range credentials {
		set.digests = append(set.digests, c.digest(credential.Username, credential.Password))
	}
	c.set.Store(set)
}

// Active returns the credentials that are valid now.
func (c *Credentials) Active() []Credential {
	return ActiveAt(c.set.Load().credentials, c.now())
}

// Authenticate says whether a valid credential is exactly this one. It takes
// as long for each wrong answer as for a right one.
func (c *Credentials) Authenticate(username, password string) bool {
	set := c.set.Load()
	digest := c.digest(username, password)
	now := c.now()
	found := 0
	for i, credential := range set.credentials {
		valid := 0
		if credential.validAt(now) {
			valid = 1
		}
		found |= valid & subtle.ConstantTimeCompare(digest[:], set.digests[i][:])
	}
	return found == 1
}

func (c *Credentials) digest(username, password string) (digest [sha256.Size]byte) {
	mac := hmac.New(sha256.New, c.blind[:])
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(username)))
	_, _ = mac.Write(length[:])
	_, _ = mac.Write([]byte(username))
	_, _ = mac.Write([]byte(password))
	mac.Sum(digest[:0])
	return digest
}
