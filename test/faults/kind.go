// SPDX-License-Identifier: Apache-2.0

package faults

// Kind is what goes wrong at a call.
type Kind string

// Kinds of faults.
const (
	// Refused: the daemon answers with an error, and does nothing.
	Refused Kind = "refused"
	// Lost: the call has its effect, and its answer is lost.
	Lost Kind = "lost"
	// Cut: the link breaks before the call reaches the host, with all that is open to that host, and the host cannot be reached for a while.
	Cut Kind = "cut"
	// Ended: the context of the call, and of the pass that it belongs to, ends before the call has an effect.
	Ended Kind = "ended"
	// EndedLate: it ends after the effect; the caller learns nothing of it.
	EndedLate Kind = "ended-late"
	// Killed: the operator is killed before the call has an effect.
	Killed Kind = "killed"
	// KilledLate: it is killed after the effect.
	KilledLate Kind = "killed-late"
)

// Kinds are all kinds, in the order in which steps take turns with them.
func Kinds() []Kind { return []Kind{Killed, Lost, Refused, EndedLate, Cut, KilledLate, Ended} }

// Kills says whether the operator does not survive it.
func (k Kind) Kills() bool { return k == Killed || k == KilledLate }

// before says that the call has no effect.
func (k Kind) before() bool { return k == Refused || k == Cut || k == Ended || k == Killed }

// Step is one call of an operation, by a name that is the same in every run: where it goes, who makes it, the method, what the object is, and which
// of the calls that have all this in common.
type Step string

// Fault is one kind at one step.
type Fault struct {
	Step Step
	Kind Kind
}
