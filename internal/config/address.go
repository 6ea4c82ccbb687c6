// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// defaultSSHPort of an address that has none.
const defaultSSHPort = 22

// DialAddress is the address as host:port in normal form: names in lower case and without a final dot, IP addresses as netip writes
// them, IPv6 in brackets. An address that a providers file may not have is returned as it is; a local host has none.
func (h Host) DialAddress() string { return dialAddress(h.Address) }

// DialAddress is the address as Host.DialAddress writes it.
func (j JumpHost) DialAddress() string { return dialAddress(j.Address) }

func dialAddress(address string) string {
	normal, err := normalAddress(address)
	if err != nil {
		return address
	}
	return normal
}

// normalAddress reads host, host:port, [v6] and [v6]:port. Its errors never show the address: it may hold a password.
func normalAddress(address string) (string, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return "", err
	}
	number := defaultSSHPort
	if port != "" {
		if number, err = parsePort(port); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

var errAddressForm = errors.New("must be host, host:port or [IPv6 address]:port")

func splitAddress(address string) (host, port string, err error) {
	switch {
	case strings.Contains(address, "://"):
		return "", "", fmt.Errorf("%w, not a URL", errAddressForm)
	case strings.Contains(address, "@"):
		return "", "", fmt.Errorf("%w: the name to log in with goes into `user:` (and a password nowhere)", errAddressForm)
	case strings.HasPrefix(address, "["):
		inner, rest, closed := strings.Cut(address[1:], "]")
		port, hasPort := strings.CutPrefix(rest, ":")
		if !closed || rest != "" && !hasPort || hasPort && port == "" {
			return "", "", errAddressForm
		}
		ip, err := netip.ParseAddr(inner)
		if err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("%w: what stands in the brackets is no IPv6 address", errAddressForm)
		}
		host, err = usableIP(ip)
		return host, port, err
	case strings.Count(address, ":") > 1:
		if _, err := netip.ParseAddr(address); err == nil {
			return "", "", fmt.Errorf("%w: put the IPv6 address in brackets", errAddressForm)
		}
		return "", "", errAddressForm
	}
	name, port, hasPort := strings.Cut(address, ":")
	if hasPort && port == "" {
		return "", "", fmt.Errorf("%w: the port after the colon is missing", errAddressForm)
	}
	host, err = normalHost(name)
	return host, port, err
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || !decimal(s) || n < 1 || n > 65535 {
		return 0, errors.New("must have a port of 1 to 65535")
	}
	return n, nil
}

var (
	hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)
	// numeric names are IP addresses to some resolvers: 127.1, 0x7f.1.
	numericEnd = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)
)

// normalHost reads a DNS name or an IP address without brackets.
func normalHost(host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return usableIP(ip)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if len(name) > 253 || !hostName.MatchString(name) || numericEnd.MatchString(name) {
		return "", errors.New("must name its host by a DNS name or an IP address")
	}
	return name, nil
}

func usableIP(ip netip.Addr) (string, error) {
	switch {
	case ip.Zone() != "":
		return "", errors.New("must be an address without a zone (%...)")
	case ip.Unmap().IsUnspecified(), ip.Unmap().IsMulticast():
		return "", errors.New("must be the address of one machine")
	}
	return ip.Unmap().String(), nil
}

// daemon identifies one libvirt, as far as the file can tell: an address, the way there, for an address means something else behind
// another jump host, and a socket.
func (h Host) daemon() string {
	path := "local"
	if !h.Local {
		path = h.DialAddress()
	}
	for _, j := range h.Jump {
		path += " by " + j.DialAddress()
	}
	return path + " " + normalSocket(h.Socket)
}

// normalSocket makes alike what is the same socket on any Linux host: /var/run is a link to /run.
func normalSocket(socket string) string {
	socket = path.Clean(socket)
	if rest, ok := strings.CutPrefix(socket, "/var/run/"); ok {
		return "/run/" + rest
	}
	return socket
}
