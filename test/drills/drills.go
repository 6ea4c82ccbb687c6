// SPDX-License-Identifier: Apache-2.0

// Package drills says how often the tests that repeat shall repeat.
package drills

import "os"

// Full is true under `make drills`, where everything is repeated as often as the requirement says, and false in `make test`.
func Full() bool { return os.Getenv("EGRESS_DRILLS") == "full" }

// Count is full under `make drills`, and reduced in `make test`.
func Count(full, reduced int) int {
	if Full() {
		return full
	}
	return reduced
}
