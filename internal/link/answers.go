// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"reflect"

	"github.com/digitalocean/go-libvirt"
)

// The library allocates what a length inside an answer says before it reads as much, and a length of 2 GiB ends the process. So the
// lengths of an answer are checked against the protocol's bounds, and against what is there, before the library sees it.
const (
	maxString = 4_194_304
	maxList   = 16_384
)

// answerTypes are what the calls of the remote program answer, by procedure; nil for nothing. A call that is not here is refused: add it.
var answerTypes = map[uint32]reflect.Type{
	1:   nil, // ConnectOpen
	2:   nil, // ConnectClose
	4:   reflect.TypeFor[libvirt.ConnectGetVersionRet](),
	6:   reflect.TypeFor[libvirt.NodeGetInfoRet](),
	7:   reflect.TypeFor[libvirt.ConnectGetCapabilitiesRet](),
	9:   nil, // DomainCreate
	11:  reflect.TypeFor[libvirt.DomainDefineXMLRet](),
	12:  nil, // DomainDestroy
	14:  reflect.TypeFor[libvirt.DomainGetXMLDescRet](),
	15:  reflect.TypeFor[libvirt.DomainGetAutostartRet](),
	16:  reflect.TypeFor[libvirt.DomainGetInfoRet](),
	23:  reflect.TypeFor[libvirt.DomainLookupByNameRet](),
	24:  reflect.TypeFor[libvirt.DomainLookupByUUIDRet](),
	28:  nil, // DomainResume
	29:  nil, // DomainSetAutostart
	33:  nil, // DomainShutdown
	34:  nil, // DomainSuspend
	43:  reflect.TypeFor[libvirt.NetworkGetXMLDescRet](),
	45:  reflect.TypeFor[libvirt.NetworkGetBridgeNameRet](),
	46:  reflect.TypeFor[libvirt.NetworkLookupByNameRet](),
	59:  reflect.TypeFor[libvirt.ConnectGetHostnameRet](),
	60:  reflect.TypeFor[libvirt.ConnectSupportsFeatureRet](),
	66:  reflect.TypeFor[libvirt.AuthListRet](),
	70:  reflect.TypeFor[libvirt.AuthPolkitRet](),
	78:  nil, // StoragePoolCreate
	83:  nil, // StoragePoolRefresh
	84:  reflect.TypeFor[libvirt.StoragePoolLookupByNameRet](),
	85:  reflect.TypeFor[libvirt.StoragePoolLookupByUUIDRet](),
	87:  reflect.TypeFor[libvirt.StoragePoolGetInfoRet](),
	88:  reflect.TypeFor[libvirt.StoragePoolGetXMLDescRet](),
	93:  reflect.TypeFor[libvirt.StorageVolCreateXMLRet](),
	94:  nil, // StorageVolDelete
	95:  reflect.TypeFor[libvirt.StorageVolLookupByNameRet](),
	97:  reflect.TypeFor[libvirt.StorageVolLookupByPathRet](),
	98:  reflect.TypeFor[libvirt.StorageVolGetInfoRet](),
	99:  reflect.TypeFor[libvirt.StorageVolGetXMLDescRet](),
	100: reflect.TypeFor[libvirt.StorageVolGetPathRet](),
	102: reflect.TypeFor[libvirt.NodeGetFreeMemoryRet](),
	110: reflect.TypeFor[libvirt.ConnectGetUriRet](),
	125: reflect.TypeFor[libvirt.StorageVolCreateXMLFromRet](),
	128: reflect.TypeFor[libvirt.InterfaceLookupByNameRet](),
	150: reflect.TypeFor[libvirt.DomainIsActiveRet](),
	151: reflect.TypeFor[libvirt.DomainIsPersistentRet](),
	152: reflect.TypeFor[libvirt.NetworkIsActiveRet](),
	154: reflect.TypeFor[libvirt.StoragePoolIsActiveRet](),
	157: reflect.TypeFor[libvirt.ConnectGetLibVersionRet](),
	159: reflect.TypeFor[libvirt.DomainMemoryStatsRet](),
	165: nil, // StorageVolWipe
	183: reflect.TypeFor[libvirt.DomainHasManagedSaveImageRet](),
	184: nil, // DomainManagedSaveRemove
	194: reflect.TypeFor[libvirt.DomainGetBlockInfoRet](),
	196: reflect.TypeFor[libvirt.DomainCreateWithFlagsRet](),
	212: reflect.TypeFor[libvirt.DomainGetStateRet](),
	228: reflect.TypeFor[libvirt.NodeGetMemoryStatsRet](),
	231: nil, // DomainUndefineFlags
	234: nil, // DomainDestroyFlags
	245: nil, // DomainReset
	260: nil, // StorageVolResize
	264: nil, // DomainSetMetadata
	265: reflect.TypeFor[libvirt.DomainGetMetadataRet](),
	273: reflect.TypeFor[libvirt.ConnectListAllDomainsRet](),
	281: reflect.TypeFor[libvirt.ConnectListAllStoragePoolsRet](),
	282: reflect.TypeFor[libvirt.StoragePoolListAllVolumesRet](),
	267: nil, // DomainPmWakeup
	283: reflect.TypeFor[libvirt.ConnectListAllNetworksRet](),
	316: reflect.TypeFor[libvirt.ConnectDomainEventCallbackRegisterAnyRet](),
	317: nil, // ConnectDomainEventCallbackDeregisterAny
	341: reflect.TypeFor[libvirt.NetworkGetDhcpLeasesRet](),
	342: reflect.TypeFor[libvirt.ConnectGetDomainCapabilitiesRet](),
	344: reflect.TypeFor[libvirt.ConnectGetAllDomainStatsRet](),
	350: reflect.TypeFor[libvirt.DomainDefineXMLFlagsRet](),
	353: reflect.TypeFor[libvirt.DomainInterfaceAddressesRet](),
	378: reflect.TypeFor[libvirt.StorageVolGetInfoFlagsRet](),
	420: reflect.TypeFor[libvirt.DomainAgentSetResponseTimeoutRet](),
}

// checkAnswer says whether the library can decode an answer to a call of the remote program.
func checkAnswer(h header, payload []byte) error {
	if h.status == statusError {
		return checkError(payload)
	}
	t := answerTypes[h.procedure]
	if t == nil {
		return nil // the library does not look at it
	}
	if _, ok := skip(payload, t); !ok {
		return notLibvirt("an answer of procedure %d with a length that cannot be", h.procedure)
	}
	return nil
}

// checkError looks at the one length that the library reads of an error: its message's, which it takes to be there.
func checkError(payload []byte) error {
	const code, domain, present = 4, 4, 4
	if len(payload) < code+domain+present {
		return notLibvirt("an error of %d bytes", len(payload))
	}
	if _, ok := skipBytes(payload[code+domain+present:]); !ok {
		return notLibvirt("an error with a length that cannot be")
	}
	return nil
}

// skip returns what follows a value of t in b, or false when it is not whole or too large.
func skip(b []byte, t reflect.Type) ([]byte, bool) {
	switch t.Kind() {
	case reflect.Int64, reflect.Uint64, reflect.Float64:
		return drop(b, 8)
	case reflect.String:
		return skipBytes(b)
	case reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return drop(b, (t.Len()+3)/4*4)
		}
		return skipAll(b, t.Elem(), t.Len())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return skipBytes(b)
		}
		n, rest, ok := count(b, maxList)
		if !ok {
			return nil, false
		}
		return skipAll(rest, t.Elem(), n)
	case reflect.Struct:
		if t == reflect.TypeFor[libvirt.TypedParamValue]() {
			return skipParam(b)
		}
		ok := true
		for i := 0; i < t.NumField() && ok; i++ {
			b, ok = skip(b, t.Field(i).Type)
		}
		return b, ok
	default: // booleans and all shorter numbers take 4 bytes
		return drop(b, 4)
	}
}

func skipAll(b []byte, t reflect.Type, n int) ([]byte, bool) {
	ok := true
	for i := 0; i < n && ok; i++ {
		b, ok = skip(b, t)
	}
	return b, ok
}

// skipParam knows the types of virTypedParameter; of others the library reads nothing.
func skipParam(b []byte) ([]byte, bool) {
	const text, wideFrom, wideTo = 7, 3, 5 // long long, unsigned long long and double are wide
	kind, rest, ok := count(b, text)
	switch {
	case !ok:
		return nil, false
	case kind == text:
		return skipBytes(rest)
	case kind >= wideFrom && kind <= wideTo:
		return drop(rest, 8)
	}
	return drop(rest, 4)
}

func skipBytes(b []byte) ([]byte, bool) {
	n, rest, ok := count(b, maxString)
	if !ok {
		return nil, false
	}
	return drop(rest, (n+3)/4*4)
}

func count(b []byte, most int) (int, []byte, bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	return int(n), b[4:], n <= uint32(most)
}

func drop(b []byte, n int) ([]byte, bool) {
	if len(b) < n {
		return nil, false
	}
	return b[n:], true
}
