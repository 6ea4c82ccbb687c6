// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"crypto/ed25519"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// FuzzKnownHosts looks one host up in any file, in which KEY and OTHER stand for two keys. Whatever the file says, the key is accepted
// only where a line pins it, and never where a line revokes it.
func FuzzKnownHosts(f *testing.F) {
	fixed := func(seed byte) ssh.PublicKey {
		key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)).Public())
		if err != nil {
			f.Fatal(err)
		}
		return key
	}
	text := func(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }
	key, other := fixed(1), fixed(2)
	replace := strings.NewReplacer("KEY", text(key), "OTHER", text(other))
	hashed := knownhosts.HashHostname("[kvm1]:2222")
	for _, seed := range []string{
		"", "# KEY\n", "[kvm1]:2222 KEY\n", "[kvm1]:2222 OTHER\n[kvm1]:2222 KEY\n", "kvm1 KEY\n", hashed + " KEY\n", "|1|AAAA|AAAA KEY\n",
		"[kvm1]:2222,[kvm2]:2222 KEY\n", "[*]:2222,![kvm1]:2222 KEY\n", "@cert-authority [kvm1]:2222 KEY\n", "@revoked * KEY\n",
		"[kvm1]:2222 KEY\n@revoked * KEY\n", "[kvm1]:2222 KEY\n@revoked * ssh-ed25519 AAAA\n", "@revoked KEY\n", "@unknown [kvm1]:2222 KEY\n",
		"[kvm1]:2222 ssh-rsa AAAA\r\n[kvm1]:2222 KEY\r\n", "\x00\n[kvm1]:2222\tKEY comment\n", "* KEY\n", "[kvm?]:2222 KEY",
	} {
		f.Add(seed, "kvm1:2222")
	}
	f.Add("192.0.2.1 KEY\n", "192.0.2.1:22")
	f.Add("[2001:db8::1]:2222 KEY\n2001:db8::1 KEY\n", "[2001:db8::1]:2222")
	file := filepath.Join(f.TempDir(), "known_hosts")
	f.Fuzz(func(t *testing.T, content, address string) {
		if len(content) > 4096 || len(address) > 40 {
			return // patterns of many stars take long to match
		}
		content = replace.Replace(content)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := loadHostKeys(&login{Hop: Hop{Address: address, KnownHosts: file}, host: address})
		if err != nil {
			return
		}
		k.algorithms()
		k.mismatch([]string{"ssh-rsa"})
		accepted := k.callback(k.hop.keyAddress(), &net.TCPAddr{}, key) == nil
		var pinned, revoked bool
		for line := range strings.Lines(content) {
			line = strings.TrimSpace(line)
			if !strings.Contains(line, text(key)[len("ssh-ed25519 "):]) || strings.HasPrefix(line, "#") {
				continue
			}
			revoked = revoked || strings.HasPrefix(line, "@revoked")
			pinned = pinned || !strings.HasPrefix(line, "@") // an authority's own key is no host's
		}
		if accepted && (!pinned || revoked) {
			t.Errorf("accepted: pinned %v, revoked %v, by %q for %q", pinned, revoked, content, address)
		}
		if accepted && len(k.pins) == 0 {
			t.Error("accepted, though nothing is pinned for the host")
		}
	})
}
