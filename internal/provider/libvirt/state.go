// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Domain states (virDomainState).
const (
	domainRunning     = 1
	domainBlocked     = 2
	domainPaused      = 3
	domainShutdown    = 4
	domainShutoff     = 5
	domainCrashed     = 6
	domainPMSuspended = 7
)

// Reasons of a pause (virDomainPausedReason) that decide anything here.
const (
	pausedIOError      = 5
	pausedWatchdog     = 6
	pausedFromSnapshot = 7
	pausedCrashed      = 10
	pausedAPIError     = 14
)

var pausedReasons = [...]string{
	"unknown", "by a user", "migration", "being saved", "being dumped", "I/O error", "watchdog", "from a snapshot", "shutting down",
	"being snapshotted", "crashed", "starting", "post-copy migration", "post-copy migration failed", "API error",
}

var shutoffReasons = [...]string{
	"unknown", "shut down", "destroyed", "crashed", "migrated away", "saved", "failed to start", "from a snapshot", "daemon restarted",
}

var crashedReasons = [...]string{"unknown", "panicked"}

func reasonText(reasons []string, reason int) string {
	if reason < 0 || reason >= len(reasons) {
		return fmt.Sprintf("reason %d", reason)
	}
	return reasons[reason]
}

// StateOf reads libvirt's numbers. Only what cannot go on by itself or by our help is Crashed; a number that is not known is Paused, for
// that is never a cause to replace anything.
func StateOf(state, reason int) (provider.State, string) {
	switch state {
	case domainRunning, domainBlocked:
		return provider.StateRunning, ""
	case domainPaused:
		why := reasonText(pausedReasons[:], reason)
		if reason == pausedWatchdog || reason == pausedCrashed {
			return provider.StateCrashed, "paused: " + why
		}
		return provider.StatePaused, "paused: " + why
	case domainShutdown:
		return provider.StateRunning, "shutting down"
	case domainShutoff:
		return provider.StateStopped, "stopped: " + reasonText(shutoffReasons[:], reason)
	case domainCrashed:
		return provider.StateCrashed, "crashed: " + reasonText(crashedReasons[:], reason)
	case domainPMSuspended:
		return provider.StatePaused, "suspended by the guest"
	}
	return provider.StatePaused, fmt.Sprintf("state %d, reason %d, which this version does not know", state, reason)
}

// remedy is what Create does about a domain of ours that it finds.
type remedy int

const (
	remedyNone    remedy = iota // it runs
	remedyStart                 // it is off
	remedyResume                // it is paused or asleep, and nothing stands in the way
	remedyWait                  // it is paused or going down, and will change by itself or by somebody's hand
	remedyReplace               // it is gone for good
)

func remedyFor(state, reason int) remedy {
	switch state {
	case domainRunning, domainBlocked:
		return remedyNone
	case domainShutoff:
		return remedyStart
	case domainCrashed:
		return remedyReplace
	case domainPMSuspended:
		return remedyResume
	case domainPaused:
		switch reason {
		case pausedIOError, pausedFromSnapshot, pausedAPIError:
			return remedyResume
		case pausedWatchdog, pausedCrashed:
			return remedyReplace
		}
	}
	return remedyWait
}
