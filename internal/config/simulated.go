// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// Faults of simulated hosts: what becomes of the calls to them.
const (
	FaultHostDown        = "host-down"
	FaultHostUnreachable = "host-unreachable"
	FaultHostHangs       = "host-hangs"
	FaultHostRefuses     = "host-refuses"
	FaultHostIncapable   = "host-incapable"
	FaultHostDegraded    = "host-degraded"
	FaultSlowHost        = "slow-host"
	FaultNoRoom          = "no-room"
)

// Faults of simulated instances: what becomes of one from its making to its removal.
const (
	FaultSlowImage        = "slow-image"
	FaultCreateFails      = "create-fails"
	FaultCreateFailsTwice = "create-fails-twice"
	FaultNameTaken        = "name-taken"

	FaultSlowBoot         = "slow-boot"
	FaultBootFails        = "boot-fails"
	FaultNeverGetsAddress = "never-gets-address"

	FaultDiesAfter     = "dies-after-60s"
	FaultStopsAfter    = "stops-after-60s"
	FaultVanishesAfter = "vanishes-after-60s"
	FaultPauses        = "pauses"

	FaultPortClosed  = "port-closed"
	FaultFlaps       = "flaps"
	FaultSilentProxy = "silent-proxy"
	FaultNoEgress    = "no-egress"
	FaultSlowProxy   = "slow-proxy"
	FaultAuthBroken  = "auth-broken"
	FaultOpenProxy   = "open-proxy"
	FaultWrongExit   = "wrong-exit"
	FaultAgentSilent = "agent-silent"

	FaultDeleteFails = "delete-fails"
	FaultSlowDelete  = "slow-delete"
)

// KnownFault is one fault that simulated hosts and instances may have.
type KnownFault struct {
	// Name, as the providers file and the names of Proxies have it.
	Name string
	// OfHost says that it is one of the calls to a host. Given to a Proxy, it is one of the calls about this Proxy, its removal left out.
	OfHost bool
	// Meaning says in one line what happens.
	Meaning string
	// Shows is the reason, of a condition or of a host, that a person sees.
	Shows string
}

// KnownFaults are all faults, those of hosts first.
func KnownFaults() []KnownFault {
	return []KnownFault{
		{FaultHostDown, true, "calls fail as to a host that is off, and nothing listens on its instances' addresses", "Unreachable"},
		{FaultHostUnreachable, true, "calls fail as to a host that cannot be reached; its instances go on serving", "Unreachable"},
		{FaultHostHangs, true, "calls get no answer until the caller gives up; its instances go on serving", "Timeout"},
		{FaultHostRefuses, true, "calls are refused as with a wrong key", "Unauthorized"},
		{FaultHostIncapable, true, "the host lacks what an instance needs; those it has go on", "Incapable"},
		{FaultHostDegraded, true, "every second call fails", "Degraded"},
		{FaultSlowHost, true, "each call takes 3 s", "Ready"},
		{FaultNoRoom, true, "the host answers Create with: no room", "Capacity"},

		{FaultSlowImage, false, "its image is on its way for 20 s, with progress", "FetchingImage"},
		{FaultCreateFails, false, "it cannot be made, for a reason that does not pass", "Permanent"},
		{FaultCreateFailsTwice, false, "making it fails twice, then succeeds", "Transient"},
		{FaultNameTaken, false, "it cannot be made, for somebody else's instance has its name", "Conflict"},

		{FaultSlowBoot, false, "it boots for 30 s longer than others", "Booting"},
		{FaultBootFails, false, "it crashes at the end of its boot", "DomainDown"},
		{FaultNeverGetsAddress, false, "it runs, and never has an address", "Booting"},

		{FaultDiesAfter, false, "it crashes 60 s after its boot, and every new one too", "DomainDown"},
		{FaultStopsAfter, false, "it shuts down 60 s after each boot", "DomainDown"},
		{FaultVanishesAfter, false, "it is gone from its host 60 s after its boot, as if somebody had removed it", "Creating"},
		{FaultPauses, false, "it runs for 30 s and is paused for 30 s, in turns; while it is paused, nothing listens", "Paused"},

		{FaultPortClosed, false, "it has an address where nothing listens", "PortClosed"},
		{FaultFlaps, false, "its port is open for 20 s and closed for 20 s, in turns", "PortClosed"},
		{FaultSilentProxy, false, "it takes connections and answers nothing", "EgressFailed"},
		{FaultNoEgress, false, "it reaches no destination", "EgressFailed"},
		{FaultSlowProxy, false, "it needs 2 s longer for each destination", "ProbeSucceeded"},
		{FaultAuthBroken, false, "it refuses valid credentials", "AuthFailed"},
		{FaultOpenProxy, false, "it serves requests without credentials", "OpenProxy"},
		{FaultWrongExit, false, "it sends from 127.255.255.254 in place of its own address", "ExitMismatch"},
		{FaultAgentSilent, false, "it takes no new credentials: its control channel closes each connection", "Drifted"},

		{FaultDeleteFails, false, "its removal fails for 60 s", "DeleteFailed"},
		{FaultSlowDelete, false, "its removal takes 10 s", "Deleting"},
	}
}

// FaultNames are the names of all faults.
func FaultNames() []string {
	known := KnownFaults()
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.Name
	}
	return names
}

// FaultOfName is the fault that a Proxy has by its name alone: one whose name it is, or with which and "-" it begins. Empty: none.
func FaultOfName(proxy string) string {
	longest := ""
	for _, name := range FaultNames() {
		if (proxy == name || strings.HasPrefix(proxy, name+"-")) && len(name) > len(longest) {
			longest = name
		}
	}
	return longest
}
