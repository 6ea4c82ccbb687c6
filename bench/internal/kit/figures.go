// SPDX-License-Identifier: Apache-2.0

//go:build live

package kit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Median of at least one time.
func Median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// P99 is the time that 99 of 100 do not exceed: the longest, where there are fewer.
func P99(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
}

// Target is what a figure is held to: at least Bound, or AtMost that.
type Target struct {
	Name         string
	Value, Bound float64
	AtMost       bool
}

func (t Target) missed() bool {
	if t.AtMost {
		return t.Value > t.Bound
	}
	return t.Value < t.Bound
}

// Verdict says which targets are missed.
func Verdict(targets ...Target) string {
	var missed, all []string
	for _, t := range targets {
		sign, wrong := "≥", "under"
		if t.AtMost {
			sign, wrong = "≤", "over"
		}
		all = append(all, fmt.Sprintf("%s %s %.3g", t.Name, sign, t.Bound))
		if t.missed() {
			missed = append(missed, fmt.Sprintf("%s is %.3g, %s %.3g", t.Name, t.Value, wrong, t.Bound))
		}
	}
	if len(missed) == 0 {
		return "every target is met: " + strings.Join(all, ", ")
	}
	return "targets missed: " + strings.Join(missed, "; ")
}
