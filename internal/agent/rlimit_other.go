// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package agent

func descriptorLimit() (uint64, bool) { return 0, false }
