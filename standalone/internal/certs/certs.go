// SPDX-License-Identifier: Apache-2.0

// Package certs makes the server's keys and certificates. The authority and the service
// account key are kept, so that clients outlive a restart; what they sign is made at each
// start and then holds for a year at least: a server starts itself anew before that.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

const (
	validity = 10 * 365 * 24 * time.Hour
	// An authority with less time left than this is replaced at start.
	renewBefore = 365 * 24 * time.Hour
	// A clock that is set back a little after a start must not make certificates invalid.
	clockSkew = time.Hour
)

// Bundle is what a server and its administrator need.
type Bundle struct {
	// PEM files; ServingFile holds certificate and key.
	CAFile, ServingFile, ServiceAccountKeyFile string
	// PEM. The administrator is in the group system:masters.
	CA, AdminCert, AdminKey []byte
}

// Ensure makes what is missing in dir, which gets mode 0700, and signs new certificates for
// the server on 127.0.0.1 and for its administrator.
func Ensure(dir string, now time.Time) (*Bundle, error) {
	b, err := ensure(dir, now)
	if err != nil {
		return nil, fmt.Errorf("certificates in %s: %w", dir, err)
	}
	return b, nil
}

func ensure(dir string, now time.Time) (*Bundle, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := &Bundle{
		CAFile:                filepath.Join(dir, "ca.crt"),
		ServingFile:           filepath.Join(dir, "serving.pem"),
		ServiceAccountKeyFile: filepath.Join(dir, "service-account.key"),
	}
	ca, err := ensureAuthority(filepath.Join(dir, "ca.pem"), now)
	if err != nil {
		return nil, err
	}
	b.CA = encodeCert(ca.cert.Raw)
	if err := datadir.WriteFile(b.CAFile, b.CA); err != nil {
		return nil, err
	}
	if err := ensureServiceAccountKey(b.ServiceAccountKeyFile); err != nil {
		return nil, err
	}
	cert, key, err := ca.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: "egress-standalone"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
	}, now)
	if err != nil {
		return nil, err
	}
	if err := datadir.WriteFile(b.ServingFile, append(cert, key...)); err != nil {
		return nil, err
	}
	b.AdminCert, b.AdminKey, err = ca.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: "egress-standalone-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now)
	return b, err
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// ensureAuthority keeps certificate and key in one file, so that a crash cannot part them.
func ensureAuthority(file string, now time.Time) (*authority, error) {
	ca, err := loadAuthority(file)
	switch {
	case err == nil && now.Add(renewBefore).Before(ca.cert.NotAfter):
		return ca, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := sign(x509.Certificate{
		// The time tells an authority from the one that it replaced.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("egress-standalone-ca@%d", now.Unix())},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil, key, key, now)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := datadir.WriteFile(file, append(encodeCert(der), keyPEM...)); err != nil {
		return nil, err
	}
	return loadAuthority(file)
}

func loadAuthority(file string) (*authority, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (remove it to have a new authority made)", file, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: its key cannot sign (remove it to have a new authority made)", file)
	}
	return &authority{cert: pair.Leaf, key: key}, nil
}

func ensureServiceAccountKey(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	return datadir.WriteFile(file, keyPEM)
}

func (a *authority) issue(template x509.Certificate, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := sign(template, a.cert, key, a.key, now)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodeCert(der), keyPEM, err
}

// sign makes the template a certificate of key, signed by parent or, where there is none, by itself.
func sign(template x509.Certificate, parent *x509.Certificate, key, signer crypto.Signer, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-clockSkew)
	template.NotAfter = now.Add(validity)
	if parent == nil {
		parent = &template
	} else if parent.NotAfter.Before(template.NotAfter) {
		template.NotAfter = parent.NotAfter
	}
	return x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
