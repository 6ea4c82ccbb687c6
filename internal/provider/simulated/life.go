// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"maps"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Times of faults; config.KnownFaults says them to people.
const (
	slowBootTime   = 30 * time.Second
	endsAfter      = 60 * time.Second
	pauseOn        = 30 * time.Second
	pauseOff       = 30 * time.Second
	flapOpen       = 20 * time.Second
	flapClosed     = 20 * time.Second
	slowHostTime   = 3 * time.Second
	slowProxyTime  = 2 * time.Second
	slowImageTime  = 20 * time.Second
	deleteFailsFor = 60 * time.Second
	slowDeleteTime = 10 * time.Second
)

// stateVanished is an instance that is to be forgotten.
const stateVanished provider.State = "Vanished"

// faultSet is the faults that something has, by name.
type faultSet map[string]bool

// afterBoot is without the faults that concern the boot alone: one that is set later does nothing to an instance that has booted.
func (f faultSet) afterBoot() faultSet {
	rest := maps.Clone(f)
	delete(rest, config.FaultBootFails)
	delete(rest, config.FaultNeverGetsAddress)
	return rest
}

// life is what an instance is like at one time.
type life struct {
	state  provider.State
	reason string
	// addressed: its address is known.
	addressed bool
	// listening: its port is open.
	listening bool
	// next is the age at which that changes; 0: never.
	next time.Duration
}

// lifeAt is what becomes of an instance with these faults, whose boot takes that long, and that was started an age ago.
func lifeAt(f faultSet, boot, age time.Duration) life {
	if age < boot {
		return life{state: provider.StateRunning, reason: "booting", next: boot}
	}
	switch {
	case f[config.FaultBootFails]:
		return life{state: provider.StateCrashed, reason: "crashed at the end of its boot (simulated fault boot-fails)"}
	case f[config.FaultNeverGetsAddress]:
		return life{state: provider.StateRunning, reason: "runs without an address (simulated fault never-gets-address)"}
	}
	if l, ended := endAt(f, age-boot); ended {
		return l
	}
	l := life{state: provider.StateRunning, reason: "running", addressed: true, listening: !f[config.FaultPortClosed] && !f[config.FaultHostDown]}
	if f[config.FaultDiesAfter] || f[config.FaultStopsAfter] || f[config.FaultVanishesAfter] {
		l.until(boot + endsAfter)
	}
	if f[config.FaultPauses] {
		runs, next := turns(age-boot, pauseOn, pauseOff)
		l.until(boot + next)
		if !runs {
			l.state, l.reason, l.listening = provider.StatePaused, "paused by somebody (simulated fault pauses)", false
		}
	}
	if f[config.FaultFlaps] {
		open, next := turns(age-boot, flapOpen, flapClosed)
		l.until(boot + next)
		l.listening = l.listening && open
	}
	return l
}

// endAt says whether an instance that booted so long ago has come to its end.
func endAt(f faultSet, up time.Duration) (l life, ended bool) {
	if up < endsAfter {
		return life{}, false
	}
	switch {
	case f[config.FaultVanishesAfter]:
		return life{state: stateVanished}, true
	case f[config.FaultDiesAfter]:
		return life{state: provider.StateCrashed, reason: "crashed (simulated fault dies-after-60s)"}, true
	case f[config.FaultStopsAfter]:
		return life{state: provider.StateStopped, reason: "shut down (simulated fault stops-after-60s)"}, true
	}
	return life{}, false
}

// until takes over the earlier of two changes.
func (l *life) until(age time.Duration) {
	if l.next == 0 || age < l.next {
		l.next = age
	}
}

// turns says of something that is on and off in turns whether it is on, and when that changes.
func turns(up, on, off time.Duration) (isOn bool, next time.Duration) {
	begin := up - up%(on+off)
	if up-begin < on {
		return true, begin + on
	}
	return false, begin + on + off
}

// behaviour is how an instance that listens treats its clients.
type behaviour struct {
	silent, deaf, open, refuses, noEgress, slow, wrongExit bool
}

func behaviourOf(f faultSet) behaviour {
	return behaviour{
		silent: f[config.FaultSilentProxy], deaf: f[config.FaultAgentSilent], open: f[config.FaultOpenProxy], refuses: f[config.FaultAuthBroken],
		noEgress: f[config.FaultNoEgress], slow: f[config.FaultSlowProxy], wrongExit: f[config.FaultWrongExit],
	}
}
