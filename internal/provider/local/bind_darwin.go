// SPDX-License-Identifier: Apache-2.0

package local

import (
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// interfaceNeeds says what binding to an interface takes on this system.
const interfaceNeeds = "macOS lets any user bind to an interface"

// loopbackIsWhole: of 127.0.0.0/8 only 127.0.0.1 may be used, and what was added to lo0.
const loopbackIsWhole = false

// bindToInterface binds a socket to an interface; network ends in 4 or 6.
func bindToInterface(fd uintptr, network, name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	if strings.HasSuffix(network, "6") {
		return os.NewSyscallError("IPV6_BOUND_IF", unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_BOUND_IF, i.Index))
	}
	return os.NewSyscallError("IP_BOUND_IF", unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BOUND_IF, i.Index))
}

// shareSourcePorts has no counterpart here.
func shareSourcePorts(uintptr) {}
