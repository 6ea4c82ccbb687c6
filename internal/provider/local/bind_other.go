// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package local

import "errors"

// interfaceNeeds says what binding to an interface takes on this system.
const interfaceNeeds = "only Linux and macOS can: use addresses instead of interfaces"

// loopbackIsWhole: of 127.0.0.0/8 only what was added to an interface may be used.
const loopbackIsWhole = false

var errNoInterfaceBinding = errors.New("this system cannot bind to an interface")

func bindToInterface(uintptr, string, string) error { return errNoInterfaceBinding }

// shareSourcePorts has no counterpart here.
func shareSourcePorts(uintptr) {}
