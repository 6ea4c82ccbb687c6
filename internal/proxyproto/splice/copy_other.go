// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package splice

import "net"

func (t *Tunneler) copy(s *session, dst, src net.Conn) (int64, error) {
	return t.copyBuffered(s, dst, src)
}

// pipePool is empty where there is no splice.
type pipePool struct{}

func (*pipePool) close() {}
