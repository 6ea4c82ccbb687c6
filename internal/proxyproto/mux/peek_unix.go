// SPDX-License-Identifier: Apache-2.0

//go:build unix

package mux

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// firstByte looks at the first byte. On TCP it stays in the socket, so that
// the connection needs no prefix.
func firstByte(conn net.Conn) (first byte, prefix []byte, err error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return takeByte(conn)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var buffer [1]byte
	var n int
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, peekErr = unix.Recvfrom(int(fd), buffer[:], unix.MSG_PEEK)
			if peekErr != unix.EINTR {
				return peekErr != unix.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, nil, err
	case peekErr != nil:
		return 0, nil, os.NewSyscallError("recvfrom", peekErr)
	case n == 0:
		return 0, nil, io.EOF
	}
	return buffer[0], nil, nil
}
