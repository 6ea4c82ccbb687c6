// SPDX-License-Identifier: Apache-2.0

package proxyproto

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// MaxHostLength is the longest host name in bytes (SOCKS5 gives it one octet).
const MaxHostLength = 255

// JoinTarget makes a Request's Target of a host and a port, or says what is
// wrong with them. The host is not resolved.
func JoinTarget(host string, port uint16) (string, error) {
	if port == 0 {
		return "", fmt.Errorf("port 0 cannot be connected to")
	}
	if err := validateHost(host); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// ParseTarget checks host:port as it stands in a request line and returns it
// in the form of JoinTarget.
func ParseTarget(hostport string) (string, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", fmt.Errorf("the target is not host:port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", fmt.Errorf("the target's port is not a number from 1 to 65535")
	}
	return JoinTarget(host, uint16(port))
}

// validateHost keeps out what no resolver needs and what could smuggle text
// into a header or a log line.
func validateHost(host string) error {
	if host == "" {
		return fmt.Errorf("the target has no host")
	}
	if len(host) > MaxHostLength {
		return fmt.Errorf("the target's host is longer than %d bytes", MaxHostLength)
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return fmt.Errorf("the target's host is neither a name nor an address without a zone")
		}
		return nil
	}
	for i := range len(host) {
		if !isHostByte(host[i]) {
			return fmt.Errorf("the target's host has a character that no host name has")
		}
	}
	return nil
}

func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
}
