// SPDX-License-Identifier: Apache-2.0

// Package smoke tests the built binary from outside: it imports nothing of the control
// plane, so that its tests compile in seconds.
package smoke
