// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"fmt"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
)

// report prints the medians and what they come to.
func report(length int64, own, same, holes map[tool][]time.Duration, peak int64) {
	rate := func(took []time.Duration) float64 { return float64(length) / 1e6 / kit.Median(took).Seconds() }
	ratio := func(all map[tool][]time.Duration, other tool) float64 {
		return kit.Median(all[other]).Seconds() / kit.Median(all[ours]).Seconds()
	}
	const mebi = 1 << 20
	memory := float64((peak + mebi - 1) / mebi)
	r1, r2, s1, s2, r3 := ratio(own, virsh), ratio(own, cat), ratio(same, virsh), ratio(same, cat), ratio(holes, virsh)
	fmt.Println(kit.Verdict(
		kit.Target{Name: "R1", Value: r1, Bound: 1.1}, kit.Target{Name: "R2", Value: r2, Bound: 1}, kit.Target{Name: "S1", Value: s1, Bound: 1},
		kit.Target{Name: "R3", Value: r3, Bound: 1}, kit.Target{Name: "M", Value: memory, Bound: 64, AtMost: true},
	))
	fmt.Printf("upload: ours %.0f MB/s, virsh %.0f, ssh %.0f; ours/virsh %.2f, ours/ssh %.2f; same cipher %.2f, %.2f; sparse %.2f; peak memory %.0f MiB\n",
		rate(own[ours]), rate(own[virsh]), rate(own[cat]), r1, r2, s1, s2, r3, memory)
}
