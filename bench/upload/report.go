// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// target is what a figure is held to.
type target struct {
	name         string
	value, bound float64
	atMost       bool
}

func (t target) missed() bool {
	if t.atMost {
		return t.value > t.bound
	}
	return t.value < t.bound
}

// report prints the medians and what they come to.
func report(length int64, own, same, holes map[tool][]time.Duration, peak int64) {
	rate := func(took []time.Duration) float64 { return float64(length) / 1e6 / median(took).Seconds() }
	ratio := func(all map[tool][]time.Duration, other tool) float64 {
		return median(all[other]).Seconds() / median(all[ours]).Seconds()
	}
	const mebi = 1 << 20
	memory := float64((peak + mebi - 1) / mebi)
	r1, r2, s1, s2, r3 := ratio(own, virsh), ratio(own, cat), ratio(same, virsh), ratio(same, cat), ratio(holes, virsh)
	fmt.Println(verdict([]target{
		{name: "R1", value: r1, bound: 1.1}, {name: "R2", value: r2, bound: 1}, {name: "S1", value: s1, bound: 1}, {name: "R3", value: r3, bound: 1},
		{name: "M", value: memory, bound: 64, atMost: true},
	}))
	fmt.Printf("upload: ours %.0f MB/s, virsh %.0f, ssh %.0f; ours/virsh %.2f, ours/ssh %.2f; same cipher %.2f, %.2f; sparse %.2f; peak memory %.0f MiB\n",
		rate(own[ours]), rate(own[virsh]), rate(own[cat]), r1, r2, s1, s2, r3, memory)
}

// verdict says which targets are missed.
func verdict(targets []target) string {
	var missed []string
	for _, t := range targets {
		if t.missed() {
			sign := "under"
			if t.atMost {
				sign = "over"
			}
			missed = append(missed, fmt.Sprintf("%s is %.3g, %s %.3g", t.name, t.value, sign, t.bound))
		}
	}
	if len(missed) == 0 {
		return "every target is met: R1 ≥ 1.1, R2 ≥ 1.0, S1 ≥ 1.0, R3 ≥ 1.0, M ≤ 64"
	}
	return "targets missed: " + strings.Join(missed, "; ")
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
