// SPDX-License-Identifier: Apache-2.0

package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// interfaceNeeds says what binding to an interface takes on this system.
const interfaceNeeds = "Linux lets any user bind to an interface since version 5.7; before that, and in some sandboxes, the operator needs the capability CAP_NET_RAW"

// loopbackIsWhole: every address of 127.0.0.0/8 may be used without adding it to an interface.
const loopbackIsWhole = true

// bindToInterface binds a socket to an interface.
func bindToInterface(fd uintptr, _ string, name string) error {
	return os.NewSyscallError("SO_BINDTODEVICE", unix.BindToDevice(int(fd), name))
}

// shareSourcePorts lets connections to different destinations have one port of the source address, of which there are few. Without it
// connections work too, only fewer at a time.
func shareSourcePorts(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}
