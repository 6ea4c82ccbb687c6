// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

// Mirror is how one server is asked. Files are read anew for each request.
type Mirror struct {
	// CAFile, PEM, replaces the system's roots for this server; empty for those.
	CAFile string
	// BasicAuthFile holds user:password, and BearerTokenFile a token, each on one line; at most one of them is set. They are sent to this server
	// alone, and over https alone.
	BasicAuthFile, BearerTokenFile string
	// Proxy to reach the server through, http:// or https://; empty for none.
	Proxy string
}

// mirrored asks each server in its own way, redirects included: what is meant for one is never sent to another.
type mirrored struct {
	mirrors map[string]Mirror
	base    *http.Transport
}

// RoundTrip asks the server that the request is for.
func (t *mirrored) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Del("Referer") // it may hold a token of the server that redirected
	mirror, ok := t.find(request.URL)
	if !ok {
		return t.base.RoundTrip(request)
	}
	transport := t.base.Clone()
	if err := mirror.configure(transport); err != nil {
		return nil, mirrorError(request.URL.Host, err)
	}
	if request.URL.Scheme == "https" {
		if err := mirror.authorize(request); err != nil {
			return nil, mirrorError(request.URL.Host, err)
		}
	}
	return transport.RoundTrip(request)
}

// find looks for host:port, and for the host alone where the port is the scheme's own.
func (t *mirrored) find(u *url.URL) (Mirror, bool) {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	own := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	if port == "" {
		port = own
	}
	if m, ok := t.mirrors[net.JoinHostPort(host, port)]; ok {
		return m, true
	}
	m, ok := t.mirrors[host]
	return m, ok && port == own
}

func (m Mirror) configure(transport *http.Transport) error {
	if m.CAFile != "" {
		pem, err := os.ReadFile(m.CAFile)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", m.CAFile)
		}
		if transport.TLSClientConfig == nil {
			transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	if m.Proxy != "" {
		proxy, err := url.Parse(m.Proxy)
		if err != nil {
			return errors.New("its proxy is not a URL")
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return nil
}

func (m Mirror) authorize(request *http.Request) error {
	switch {
	case m.BearerTokenFile != "":
		token, err := secretLine(m.BearerTokenFile)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	case m.BasicAuthFile != "":
		line, err := secretLine(m.BasicAuthFile)
		if err != nil {
			return err
		}
		user, password, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%s does not hold user:password", m.BasicAuthFile)
		}
		request.SetBasicAuth(user, password)
	}
	return nil
}

// secretLine reads a file of one line; no error shows what it holds.
func secretLine(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line := strings.TrimRight(string(data), "\r\n")
	if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%s does not hold one line of text", file)
	}
	return line, nil
}

func mirrorError(host string, err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return transient(err, "mirror %s: %v", host, err)
	}
	return &Error{Kind: Permanent, Message: fmt.Sprintf("mirror %s: %v", host, err), Next: "correct the entry's mirrors, or the file", Err: err}
}

// hint says what to do about an answer that refuses.
func (o *Opener) hint(u *url.URL, code int) string {
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return "check the URL"
	}
	if _, ok := (&mirrored{mirrors: o.Mirrors}).find(u); ok {
		return "check the credentials of this server in the entry's mirrors"
	}
	return "check the URL, or give credentials for " + config.RedactURL(u.Host) + " in the entry's mirrors"
}
