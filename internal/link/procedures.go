// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"strings"
)

// quietProcedures are the names of those that answer nothing, or that only we call; the others have their names in answerTypes.
var quietProcedures = map[uint32]string{
	1: "ConnectOpen", 2: "ConnectClose", 9: "DomainCreate", 12: "DomainDestroy", 28: "DomainResume", 29: "DomainSetAutostart",
	33: "DomainShutdown", 34: "DomainSuspend", 78: "StoragePoolCreate", 83: "StoragePoolRefresh", 94: "StorageVolDelete", 165: "StorageVolWipe",
	184: "DomainManagedSaveRemove", 201: "DomainOpenConsole", 208: "StorageVolUpload", 231: "DomainUndefineFlags", 234: "DomainDestroyFlags",
	245: "DomainReset", 260: "StorageVolResize", 264: "DomainSetMetadata", 267: "DomainPmWakeup", 317: "ConnectDomainEventCallbackDeregisterAny",
}

// procedureName is libvirt's name of a procedure of the remote program.
func procedureName(n uint32) string {
	if t := answerTypes[n]; t != nil {
		return strings.TrimSuffix(t.Name(), "Ret")
	}
	if name, ok := quietProcedures[n]; ok {
		return name
	}
	return fmt.Sprintf("procedure%d", n)
}
