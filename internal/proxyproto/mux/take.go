// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"io"
	"net"
)

// takeByte reads the first byte off the connection.
func takeByte(conn net.Conn) (first byte, prefix []byte, err error) {
	prefix = make([]byte, 1)
	if _, err := io.ReadFull(conn, prefix); err != nil {
		return 0, nil, err
	}
	return prefix[0], prefix, nil
}
