// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

// Bytes of RFC 1928 and RFC 1929.
const (
	version     = 0x05
	authVersion = 0x01

	methodNone         = 0x00
	methodUserPass     = 0x02
	methodUnacceptable = 0xFF

	commandConnect = 0x01

	addressIPv4 = 0x01
	addressName = 0x03
	addressIPv6 = 0x04

	replySuccess             = 0
	replyGeneral             = 1
	replyCommandNotSupported = 7
	replyAddressNotSupported = 8

	authSuccess = 0x00
	authFailure = 0x01
)

// replyError is a request that is answered with a code instead of a tunnel.
type replyError struct {
	code   byte
	reason string
}

func (e *replyError) Error() string { return e.reason }

// readGreeting reads the client's first message: the methods that it offers.
func readGreeting(r io.Reader) (methods []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0] != version {
		return nil, fmt.Errorf("version %d is not SOCKS5", head[0])
	}
	methods = make([]byte, head[1])
	if _, err := io.ReadFull(r, methods); err != nil {
		return nil, noEOF(err)
	}
	return methods, nil
}

// readUserPass reads the RFC 1929 message.
func readUserPass(r io.Reader) (username, password string, err error) {
	var head [1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", "", noEOF(err)
	}
	if head[0] != authVersion {
		return "", "", fmt.Errorf("authentication version %d is unknown", head[0])
	}
	if username, err = readString(r); err != nil {
		return "", "", err
	}
	password, err = readString(r)
	return username, password, err
}

// readString reads one octet of length and as many bytes.
func readString(r io.Reader) (string, error) {
	var buffer [1 + 255]byte
	if _, err := io.ReadFull(r, buffer[:1]); err != nil {
		return "", noEOF(err)
	}
	text := buffer[1 : 1+int(buffer[0])]
	if _, err := io.ReadFull(r, text); err != nil {
		return "", noEOF(err)
	}
	return string(text), nil
}

// readRequest reads a request and returns its target. A *replyError is what
// the client is to be told; any other error is a connection that is broken.
func readRequest(r io.Reader) (target string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", noEOF(err)
	}
	if head[0] != version {
		return "", fmt.Errorf("version %d is not SOCKS5", head[0])
	}
	host, err := readAddress(r, head[3])
	if err != nil {
		return "", err
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return "", noEOF(err)
	}
	if head[1] != commandConnect {
		return "", &replyError{replyCommandNotSupported, fmt.Sprintf("command %d is not CONNECT", head[1])}
	}
	target, err = proxyproto.JoinTarget(host, uint16(port[0])<<8|uint16(port[1]))
	if err != nil {
		return "", &replyError{replyGeneral, err.Error()}
	}
	return target, nil
}

func readAddress(r io.Reader, kind byte) (host string, err error) {
	switch kind {
	case addressIPv4:
		var b [4]byte
		_, err = io.ReadFull(r, b[:])
		return netip.AddrFrom4(b).String(), noEOF(err)
	case addressIPv6:
		var b [16]byte
		_, err = io.ReadFull(r, b[:])
		return netip.AddrFrom16(b).String(), noEOF(err)
	case addressName:
		return readString(r)
	}
	return "", &replyError{replyAddressNotSupported, fmt.Sprintf("address type %d is unknown", kind)}
}

// noEOF makes an end in the middle of a message what it is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// reply is a server's answer. The bound address is all zero: it would tell
// the client about the network behind the proxy, and nothing else.
func reply(code byte) []byte {
	return []byte{version, code, 0, addressIPv4, 0, 0, 0, 0, 0, 0}
}
