// SPDX-License-Identifier: Apache-2.0

//go:build live

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Answer of the reflector, or of the proxy in its place.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Address that the reflector saw.
func (a Answer) Address() (netip.Addr, error) {
	var body struct {
		Address netip.Addr `json:"address"`
	}
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
		return netip.Addr{}, fmt.Errorf("not an answer of a reflector: %q", a.Body)
	}
	return body.Address, nil
}

// Fetch asks for a URL through a proxy, with the standard library's own client: none of the operator's code takes part.
func Fetch(ctx context.Context, proxy *url.URL, target string) (Answer, error) {
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return Answer{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return Answer{response.StatusCode, response.Header, string(body)}, err
}
