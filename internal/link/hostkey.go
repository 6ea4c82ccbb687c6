// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys checks one hop's host key against known_hosts.
type hostKeys struct {
	hop   *login
	check ssh.HostKeyCallback
	pins  []knownhosts.KnownKey // what known_hosts says of the hop, authorities included
	lines [][]byte              // of known_hosts
}

func loadHostKeys(l *login) (*hostKeys, error) {
	refuse := func(err error) error { return l.refuse("known_hosts cannot be used: %v", err) }
	text, err := os.ReadFile(l.KnownHosts)
	if err != nil {
		return nil, refuse(err)
	}
	check, err := knownhosts.New(l.KnownHosts)
	if err != nil {
		return nil, refuse(err)
	}
	k := &hostKeys{hop: l, check: check, lines: bytes.Split(text, []byte("\n"))}
	if err := k.readRevocations(); err != nil {
		return nil, refuse(err)
	}
	k.pins, err = k.lookup()
	if err != nil {
		return nil, refuse(err)
	}
	return k, nil
}

// readRevocations refuses a file with a @revoked line that cannot be read: the library passes over such lines, and would accept the key
// that was meant.
func (k *hostKeys) readRevocations() error {
	for i, line := range k.lines {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '@' {
			continue
		}
		if marker, _, _, _, _, err := ssh.ParseKnownHosts(line); err != nil || marker != "revoked" && marker != "cert-authority" {
			return fmt.Errorf("%s line %d begins with @ and is neither a whole @revoked nor a whole @cert-authority line: mend it, or remove it",
				k.hop.KnownHosts, i+1)
		}
	}
	return nil
}

// lookup asks for a key that nobody has: the refusal lists the keys that are expected.
func (k *hostKeys) lookup() ([]knownhosts.KnownKey, error) {
	nobodys, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public())
	if err != nil {
		return nil, err
	}
	var refused *knownhosts.KeyError
	err = k.check(k.hop.keyAddress(), &net.TCPAddr{}, nobodys)
	if !errors.As(err, &refused) {
		return nil, err
	}
	return refused.Want, nil
}

// algorithms are those of the pinned keys, so that a server with several keys shows
// one that can be verified; of keys without a certificate when nothing is pinned, for
// such a key is what the refusal asks to pin.
func (k *hostKeys) algorithms() []string {
	if len(k.pins) == 0 {
		return plainAlgorithms
	}
	var plain, certificates []string
	for _, pin := range k.pins {
		if k.isAuthority(pin) {
			certificates = certificateAlgorithms
			continue
		}
		for _, a := range keyAlgorithms(pin.Key.Type()) {
			if !slices.Contains(plain, a) {
				plain = append(plain, a)
			}
		}
	}
	return append(plain, certificates...)
}

var plainAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

var certificateAlgorithms = []string{
	ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
	ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
}

func keyAlgorithms(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA { // a key of this type signs with SHA-2; its SHA-1 is not asked for
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

func (k *hostKeys) isAuthority(pin knownhosts.KnownKey) bool {
	i := pin.Line - 1
	return i < len(k.lines) && bytes.HasPrefix(bytes.TrimSpace(k.lines[i]), []byte("@cert-authority"))
}

// callback refuses with an *AuthError that says what was looked for, and what to do.
func (k *hostKeys) callback(address string, remote net.Addr, key ssh.PublicKey) error {
	err := k.check(address, remote, key)
	if err == nil && !isCertificate(key) && !slices.ContainsFunc(k.pins, func(p knownhosts.KnownKey) bool {
		return !k.isAuthority(p) && bytes.Equal(p.Key.Marshal(), key.Marshal())
	}) {
		err = errors.New("it is the key of an authority, which signs hosts' keys and is none itself")
	}
	if err == nil {
		return nil
	}
	return k.hop.refuse("%s", k.explain(err, key))
}

func (k *hostKeys) explain(err error, key ssh.PublicKey) string {
	offered := key.Type() + " " + ssh.FingerprintSHA256(key)
	var revoked *knownhosts.RevokedError
	var refused *knownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return fmt.Sprintf("its host key %s is revoked by %s line %d: give the host a new key, and pin that one",
			offered, revoked.Revoked.Filename, revoked.Revoked.Line)
	case errors.As(err, &refused) && len(refused.Want) == 0:
		return fmt.Sprintf("its host key is not known: %s has no entry %q. It offers %s; compare that with the host's own, then add the line that `%s` prints%s",
			k.hop.KnownHosts, k.entry(), offered, k.scan(), k.aliasHint())
	case errors.As(err, &refused):
		return fmt.Sprintf("its host key %s is not the one that known_hosts pins for %q (%s): somebody may be in between; if the host was given a new key, replace that line",
			offered, k.entry(), k.describePins())
	case isCertificate(key) && strings.HasSuffix(err.Error(), "revoked"):
		return fmt.Sprintf("its host certificate %s is revoked: its key, or its authority's, is on a @revoked line of %s: give the host a new one",
			offered, k.hop.KnownHosts)
	}
	return fmt.Sprintf("its host key %s is refused for entry %q of %s: %v", offered, k.entry(), k.hop.KnownHosts, err)
}

func isCertificate(key ssh.PublicKey) bool {
	_, ok := key.(*ssh.Certificate)
	return ok
}

// mismatch explains a server that has no key of any pinned type.
func (k *hostKeys) mismatch(offered []string) error {
	return k.hop.refuse(
		"it has no host key of the types that known_hosts pins for %q (%s); it offers %s: pin one of those, after comparing it with the host's own",
		k.entry(), k.describePins(), strings.Join(offered, ", "))
}

func (k *hostKeys) entry() string { return knownhosts.Normalize(k.hop.keyAddress()) }

func (k *hostKeys) describePins() string {
	var pins []string
	for _, p := range k.pins {
		what := "key"
		if k.isAuthority(p) {
			what = "authority"
		}
		pins = append(pins, fmt.Sprintf("%s line %d: %s %s %s", p.Filename, p.Line, what, p.Key.Type(), ssh.FingerprintSHA256(p.Key)))
	}
	return strings.Join(pins, "; ")
}

func (k *hostKeys) scan() string {
	host, port, err := net.SplitHostPort(k.hop.Address)
	if err != nil {
		return "ssh-keyscan " + k.hop.Address
	}
	if port == "22" {
		return "ssh-keyscan " + host
	}
	return "ssh-keyscan -p " + port + " " + host
}

func (k *hostKeys) aliasHint() string {
	if k.hop.HostKeyAlias == "" {
		return ""
	}
	return fmt.Sprintf(", with its first word replaced by %s", k.entry())
}
