// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

const headerProxyAuthorization = "Proxy-Authorization"

// authenticate checks the request's credentials; exactly one header counts.
func (s *Server) authenticate(r *http.Request) (username string, ok bool) {
	values := r.Header[headerProxyAuthorization]
	if len(values) == 0 && proxyproto.LetsAnonymousIn(s.config.Auth) {
		return "", true
	}
	if len(values) != 1 {
		return "", false
	}
	username, password, ok := parseBasic(values[0])
	if !ok || !s.config.Auth.Authenticate(username, password) {
		return "", false
	}
	return username, true
}

// parseBasic reads the value of a Basic authorization (RFC 7617).
func parseBasic(value string) (username, password string, ok bool) {
	scheme, encoded, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return "", "", false
	}
	username, password, ok = strings.Cut(string(decoded), ":")
	if !ok || len(username) > proxyproto.MaxCredentialLength || len(password) > proxyproto.MaxCredentialLength {
		return "", "", false
	}
	return username, password, true
}

func basic(username, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}
