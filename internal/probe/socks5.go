// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

const (
	socksVersion      = 5
	socksNoAuth       = 0
	socksNoAcceptable = 0xff
	socksConnect      = 1
	socksIPv4         = 1
	socksIPv6         = 4
	socksDenied       = 2 // "connection not allowed by ruleset"
	socksName         = 3
)

// socks5Anonymous asks a SOCKS5 proxy for a tunnel as a client without credentials does (RFC 1928, method 0). nil means that the proxy
// opened it.
func socks5Anonymous(conn net.Conn, reflector *url.URL) error {
	if _, err := conn.Write([]byte{socksVersion, 1, socksNoAuth}); err != nil {
		return err
	}
	var method [2]byte
	if _, err := io.ReadFull(conn, method[:]); err != nil {
		return fmt.Errorf("no SOCKS5 answer: %w", err)
	}
	switch {
	case method[0] != socksVersion:
		return fmt.Errorf("the proxy does not speak SOCKS5 (first byte %#x)", method[0])
	case method[1] != socksNoAuth:
		return refusal{"it accepts no client without credentials"}
	}
	host, portText, err := net.SplitHostPort(authority(reflector))
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || len(host) > 255 {
		return fmt.Errorf("the reflector's address does not fit into a SOCKS5 request")
	}
	request := append([]byte{socksVersion, socksConnect, 0}, socksAddress(host)...)
	if _, err := conn.Write(append(request, byte(port>>8), byte(port))); err != nil {
		return err
	}
	return readSOCKS5Reply(conn)
}

// socksAddress is a host as the request with credentials sends it, so that the two ask for the same.
func socksAddress(host string) []byte {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return append([]byte{socksName, byte(len(host))}, host...)
	case addr.Is4():
		return append([]byte{socksIPv4}, addr.AsSlice()...)
	}
	return append([]byte{socksIPv6}, addr.AsSlice()...)
}

// readSOCKS5Reply takes only a denial for a refusal: any other failure says nothing about who may use the proxy.
func readSOCKS5Reply(conn net.Conn) error {
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return fmt.Errorf("no SOCKS5 reply: %w", err)
	}
	switch head[1] {
	case 0:
	case socksDenied:
		return refusal{"it denies the request itself"}
	default:
		return fmt.Errorf("the proxy fails a request without credentials (SOCKS5 reply %d)", head[1])
	}
	rest := map[byte]int{socksIPv4: 4 - 1 + 2, socksIPv6: 16 - 1 + 2, socksName: int(head[4]) + 2}[head[3]]
	_, err := io.CopyN(io.Discard, conn, int64(rest))
	return err
}
