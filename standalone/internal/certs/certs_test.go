// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestEnsure(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	day := 24 * time.Hour
	for _, tt := range []struct {
		name     string
		later    time.Duration
		prepare  func(t *testing.T, dir string)
		sameCA   bool
		wantFail bool
	}{
		{name: "the next start keeps the authority", later: day, sameCA: true},
		{name: "nine years later the authority is renewed", later: validity - renewBefore + day},
		{name: "a removed authority is made anew", later: day, prepare: func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a torn authority is reported, not replaced", later: day, wantFail: true, prepare: func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "ca.pem"), 20); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pki")
			first := mustEnsure(t, dir, now)
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			second, err := Ensure(dir, now.Add(tt.later))
			if (err != nil) != tt.wantFail {
				t.Fatalf("second start: error %v, want one: %v", err, tt.wantFail)
			}
			if tt.wantFail {
				return
			}
			if same := bytes.Equal(first.CA, second.CA); same != tt.sameCA {
				t.Errorf("same authority: %v, want %v", same, tt.sameCA)
			}
			if bytes.Equal(first.AdminCert, second.AdminCert) {
				t.Error("the administrator's certificate is the one of the first start")
			}
			checkServing(t, second, now.Add(tt.later))
		})
	}
}

func TestEnsureKeepsFilesPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	mustEnsure(t, dir, time.Now())
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 {
		t.Errorf("%d files, want 4", len(entries))
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %o, want 600", entry.Name(), got)
		}
	}
}

func mustEnsure(t *testing.T, dir string, now time.Time) *Bundle {
	t.Helper()
	bundle, err := Ensure(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func checkServing(t *testing.T, bundle *Bundle, now time.Time) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(bundle.ServingFile, bundle.ServingFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle.CA)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", CurrentTime: now}); err != nil {
		t.Errorf("serving certificate: %v", err)
	}
}
