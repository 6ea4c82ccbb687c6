// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto/socks5"
)

const (
	maxBody     = 4 << 10
	headerNonce = "X-Egress-Nonce"
	userAgent   = "egress-proxies-probe"
)

// refusal is a proxy that wants (other) credentials.
type refusal struct{ detail string }

func (r refusal) Error() string { return r.detail }

// attempt sends one request to a reflector through the proxy. It never takes a proxy from the environment.
func attempt(ctx context.Context, t Target, reflector *url.URL, credentials bool, dialTimeout time.Duration) Attempt {
	conn, failed := dialProxy(ctx, t, dialTimeout)
	if failed.Result != NotTried {
		return failed
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	exit, err := ask(ctx, conn, t, reflector, credentials)
	var refused refusal
	switch {
	case err == nil:
		return Attempt{Result: Served, Exit: exit}
	case errors.As(err, &refused), errors.Is(err, socks5.ErrUnauthorized), errors.Is(err, socks5.ErrNoPasswordMethod):
		return Attempt{Result: Refused, Detail: err.Error()}
	case ctx.Err() != nil:
		return Attempt{Result: Broken, Detail: "no answer in time"}
	}
	return Attempt{Result: Broken, Detail: err.Error()}
}

// dialProxy connects to the proxy; the Attempt says why not, and is zero otherwise.
func dialProxy(ctx context.Context, t Target, timeout time.Duration) (net.Conn, Attempt) {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", t.Address)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, Attempt{Result: Closed, Detail: err.Error()}
	case err != nil:
		return nil, Attempt{Result: Unreachable, Detail: err.Error()}
	case t.Protocol != HTTPS:
		return conn, Attempt{}
	}
	config, err := t.tlsConfig()
	if err == nil {
		secure := tls.Client(conn, config)
		if err = secure.HandshakeContext(ctx); err == nil {
			return secure, Attempt{}
		}
	}
	_ = conn.Close()
	return nil, Attempt{Result: Broken, Detail: "TLS with the proxy: " + err.Error()}
}

func (t Target) tlsConfig() (*tls.Config, error) {
	name := t.ServerName
	if name == "" {
		host, _, err := net.SplitHostPort(t.Address)
		if err != nil {
			return nil, err
		}
		name = host
	}
	config := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("the CA holds no PEM certificate")
		}
	}
	return config, nil
}

// ask sends the request over a connection to the proxy, and returns the address that the reflector saw.
func ask(ctx context.Context, conn net.Conn, t Target, reflector *url.URL, credentials bool) (netip.Addr, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, reflector.String(), nil)
	if err != nil {
		return netip.Addr{}, err
	}
	nonce := newNonce()
	request.Header.Set(headerNonce, nonce)
	request.Header.Set("User-Agent", userAgent)
	request.Close = true

	forward := t.Protocol != SOCKS5 && reflector.Scheme == "http"
	switch {
	case forward:
		if credentials {
			request.Header.Set("Proxy-Authorization", t.basic())
		}
		err = request.WriteProxy(conn)
	case t.Protocol == SOCKS5:
		err = throughSOCKS5(ctx, conn, t, reflector, credentials)
	default:
		err = throughConnect(conn, t, reflector, credentials)
	}
	if err == nil && !forward {
		if reflector.Scheme == "https" {
			conn = tls.Client(conn, &tls.Config{ServerName: reflector.Hostname(), MinVersion: tls.VersionTLS12})
		}
		err = request.Write(conn)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxHeader+maxBody)), request)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no HTTP answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if forward {
		if err := proxyStatus(response, http.StatusProxyAuthRequired); err != nil {
			return netip.Addr{}, err
		}
	}
	return readAnswer(response, nonce)
}

func throughConnect(conn net.Conn, t Target, reflector *url.URL, credentials bool) error {
	target := authority(reflector)
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Host: target}, Host: target, Header: http.Header{"User-Agent": {userAgent}}}
	if credentials {
		request.Header.Set("Proxy-Authorization", t.basic())
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	// The target speaks only when it is spoken to, so nothing of it can be lost in this reader.
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxHeader)), request)
	if err != nil {
		return fmt.Errorf("no HTTP answer to CONNECT: %w", err)
	}
	// Closing the body of an answer that makes a tunnel reads nothing: it has none.
	defer func() { _ = response.Body.Close() }()
	if err := proxyStatus(response, http.StatusProxyAuthRequired, http.StatusUnauthorized); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the proxy answers CONNECT with %d", response.StatusCode)
	}
	return nil
}

// throughSOCKS5 opens a tunnel; without credentials it offers none and wants to be refused.
func throughSOCKS5(ctx context.Context, conn net.Conn, t Target, reflector *url.URL, credentials bool) error {
	if credentials {
		return socks5.Handshake(ctx, conn, t.Username, t.Password.Reveal(), authority(reflector))
	}
	return socks5Anonymous(conn, reflector)
}

const maxHeader = 16 << 10

// proxyStatus takes out the answers that are the proxy's own: refusals by these statuses, and our agent's errors. 401 to a request that
// was passed on is the reflector's.
func proxyStatus(response *http.Response, refusals ...int) error {
	switch {
	case slices.Contains(refusals, response.StatusCode):
		return refusal{fmt.Sprintf("it answers %d", response.StatusCode)}
	case response.Header.Get(proxyproto.HeaderError) != "":
		return errors.New(proxyproto.ParseFailure(response.Header.Get(proxyproto.HeaderError)).Sentence())
	}
	return nil
}

// readAnswer takes the address out of a reflector's answer: JSON with an address, or a bare address.
func readAnswer(response *http.Response, nonce string) (netip.Addr, error) {
	if response.StatusCode != http.StatusOK {
		return netip.Addr{}, fmt.Errorf("the reflector's answer has status %d instead of 200", response.StatusCode)
	}
	if echoed := response.Header.Get(headerNonce); echoed != "" && echoed != nonce {
		return netip.Addr{}, errors.New("the answer belongs to another request: a cache stands between proxy and reflector")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the reflector's answer breaks off: %w", err)
	}
	text := strings.TrimSpace(string(body))
	var answer struct{ Address string }
	if json.Unmarshal(body, &answer) == nil && answer.Address != "" {
		text = answer.Address
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, errors.New("the reflector's answer holds no address: something else answers in its place")
	}
	return addr.Unmap().WithZone(""), nil
}

func (t Target) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(t.Username+":"+t.Password.Reveal()))
}

// authority is host:port of a URL.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
