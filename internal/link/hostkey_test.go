// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/egress-proxies/egress-proxies-operator/internal/link/linktest"
)

func aliasFor(t *testing.T, h *host, alias string) string {
	t.Helper()
	return linktest.KnownHosts(t, knownhosts.Line([]string{alias}, h.server.HostKeys[0].PublicKey()))
}

// line is one of known_hosts, with the pattern as it is given.
func line(pattern string, key ssh.PublicKey) string {
	return pattern + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func TestHostKeyTypes(t *testing.T) {
	ed, _ := linktest.Ed25519Key(t)
	rsa := linktest.RSAKey(t)
	other, _ := linktest.Ed25519Key(t)
	otherRSA := linktest.RSAKey(t)
	both := startHost(t, &linktest.Peer{}, func(s *linktest.Server) { s.HostKeys = []ssh.Signer{rsa, ed} })
	onlyRSA := startHost(t, &linktest.Peer{}, func(s *linktest.Server) { s.HostKeys = []ssh.Signer{rsa} })
	bracketed := func(h *host) string {
		name, port, _ := net.SplitHostPort(h.server.Addr)
		return fmt.Sprintf("[%s]:%s", name, port)
	}
	hashed := func(h *host) string { return knownhosts.HashHostname(knownhosts.Normalize(h.server.Addr)) }

	for _, c := range []struct {
		name  string
		host  *host
		lines []string
		alias string
		want  string // of the refusal; empty when the key is right
	}{
		{name: "only its RSA key is pinned", host: both, lines: []string{line(bracketed(both), rsa.PublicKey())}},
		{name: "only its ed25519 key is pinned", host: both, lines: []string{line(bracketed(both), ed.PublicKey())}},
		{name: "a hashed entry with its RSA key", host: both, lines: []string{line(hashed(both), rsa.PublicKey())}},
		{name: "a hashed entry with its ed25519 key", host: both, lines: []string{line(hashed(both), ed.PublicKey())}},
		{name: "an alias without a port", host: both, lines: []string{line("kvm1", ed.PublicKey())}, alias: "kvm1"},
		{name: "another ed25519 key is pinned", host: both, lines: []string{"# first", line(bracketed(both), other.PublicKey())}, want: "known_hosts line 2"},
		{name: "another RSA key is pinned", host: both, lines: []string{line(bracketed(both), otherRSA.PublicKey())}, want: bracketed(both)},
		{name: "a hashed entry with another key", host: both, lines: []string{line(hashed(both), other.PublicKey())}, want: bracketed(both)},
		{name: "a key of a type that it does not have is pinned", host: onlyRSA, lines: []string{line(bracketed(onlyRSA), ed.PublicKey())}, want: "it offers rsa-sha2"},
		{name: "only another host is pinned", host: both, lines: []string{line("elsewhere", ed.PublicKey())}, want: fmt.Sprintf("no entry %q", bracketed(both))},
		{name: "its key is pinned as an authority's", host: both, lines: []string{"@cert-authority " + line(bracketed(both), ed.PublicKey()), line(bracketed(both), other.PublicKey())}, want: "the key of an authority"},
		{name: "it is pinned without its port", host: both, lines: []string{line("127.0.0.1", ed.PublicKey())}, want: "ssh-keyscan -p"},
	} {
		verb := "verifies"
		if c.want != "" {
			verb = "is Unauthorized and names the entry"
		}
		t.Run("L3: "+c.name+": it "+verb, func(t *testing.T) {
			target := c.host.target
			target.HostKeyAlias = c.alias
			target.KnownHosts = linktest.KnownHosts(t, c.lines...)
			l, err := Dial(t.Context(), target)
			if err == nil {
				l.Close()
			}
			expectAuth(t, err, c.want)
		})
	}
}

func keyText(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

func port(t *testing.T, h *host) string {
	t.Helper()
	_, port, err := net.SplitHostPort(h.server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func expectAuth(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	var auth *AuthError
	if !errors.As(err, &auth) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %T %v; want an AuthError with %q", err, err, want)
	}
}

func TestRevokedHostKey(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	key := h.server.HostKeys[0].PublicKey()
	pin := line(knownhosts.Normalize(h.server.Addr), key)
	for name, lines := range map[string][]string{
		"alone":                   {"@revoked * " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))},
		"pinned in the same file": {pin, "@revoked " + pin},
	} {
		// Of L2, which is about conditions and ProviderHealth too.
		t.Run("a revoked host key is Unauthorized: "+name, func(t *testing.T) {
			target := h.target
			target.KnownHosts = linktest.KnownHosts(t, lines...)
			_, err := Dial(t.Context(), target)
			expectAuth(t, err, "is revoked by")
		})
	}
	t.Run("a revoked host key is not dialed again as an outage would be", func(t *testing.T) {
		target := h.target
		target.KnownHosts = linktest.KnownHosts(t, pin, "@revoked "+pin)
		k := NewKeeper(target)
		defer k.Close()
		_, err := k.Get(t.Context())
		expectAuth(t, err, "is revoked by")
		if left := time.Until(k.notBefore); left < authMemory/2 {
			t.Errorf("it is dialed again in %v", left)
		}
	})
}

// TestUnreadableRevocation: the library passes over a line that it cannot read, and would take the key that was revoked.
func TestUnreadableRevocation(t *testing.T) {
	h := startHost(t, &linktest.Peer{}, nil)
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(h.server.HostKeys[0].PublicKey())))
	pin := knownhosts.Normalize(h.server.Addr) + " " + key
	for name, bad := range map[string]string{
		"cut short":            "@revoked * " + key[:len(key)-9],
		"without a pattern":    "@revoked " + key,
		"of an unknown marker": "@Revoked * " + key,
		"behind spaces":        "   @revoked * ssh-ed25519",
	} {
		t.Run("a @revoked line that cannot be read is not passed over: "+name, func(t *testing.T) {
			target := h.target
			target.KnownHosts = linktest.KnownHosts(t, pin, bad)
			l, err := Dial(t.Context(), target)
			if err == nil {
				l.Close()
			}
			expectAuth(t, err, "line 2")
		})
	}
}

func TestHostCertificate(t *testing.T) {
	authority, _ := linktest.Ed25519Key(t)
	key, _ := linktest.Ed25519Key(t)
	cert := &ssh.Certificate{
		Key: key.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity,
	}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	plain := linktest.RSAKey(t)
	h := startHost(t, &linktest.Peer{}, func(s *linktest.Server) { s.HostKeys = []ssh.Signer{plain, signer} })
	stranger, _ := linktest.Ed25519Key(t)
	pattern := knownhosts.Normalize(h.server.Addr)
	for name, c := range map[string]struct {
		line string
		want string
	}{
		"by an authority for all hosts of a pattern": {line: "@cert-authority [127.0.0.*]:" + port(t, h) + " " + keyText(authority)},
		"by an authority for other hosts":            {line: "@cert-authority *.example.org " + keyText(authority), want: "no entry"},
		"whose authority is revoked": {
			line: "@cert-authority " + line(pattern, authority.PublicKey()) + "\n@revoked * " + keyText(authority), want: "is revoked",
		},
		"whose own key is revoked": {
			line: "@cert-authority " + line(pattern, authority.PublicKey()) + "\n@revoked * " + keyText(key), want: "is revoked",
		},
		"by the pinned authority": {line: "@cert-authority " + line(pattern, authority.PublicKey())},
		"by another":              {line: "@cert-authority " + line(pattern, stranger.PublicKey()), want: "no authorities"},
	} {
		t.Run(name, func(t *testing.T) {
			target := h.target
			target.KnownHosts = linktest.KnownHosts(t, c.line)
			l, err := Dial(t.Context(), target)
			if err == nil {
				l.Close()
			}
			expectAuth(t, err, c.want)
		})
	}
}
