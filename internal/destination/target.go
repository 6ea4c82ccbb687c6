// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"net"
	"net/netip"
	"strings"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// normalTarget is host:port in the one form in which targets are compared.
func normalTarget(target string) (string, error) {
	target, err := proxyproto.ParseTarget(target)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(addr.Unmap().String(), port), nil
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port), nil
}
