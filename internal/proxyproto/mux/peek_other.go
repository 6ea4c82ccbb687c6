// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package mux

import "net"

func firstByte(conn net.Conn) (first byte, prefix []byte, err error) { return takeByte(conn) }
