// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package agent

import "golang.org/x/sys/unix"

// descriptorLimit is how many files this process may have open.
func descriptorLimit() (uint64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
