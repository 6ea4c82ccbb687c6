// SPDX-License-Identifier: Apache-2.0

// Package faults makes a fault at one call that an operator makes towards a host or the API server, and tells what calls there are. The fault
// matrix, the test of this package, discovers the calls of each operation by running it once, and runs it again for each call and each kind of fault.
// docs/faults.md says how to run it, and how to read a failure.
package faults
