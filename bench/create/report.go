// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
)

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1e3) }

// report prints the figures of each batch, and what they come to: that of single instances.
func report(c comparison, applied []time.Duration) {
	for _, b := range batches {
		o, s := c.took[ours][b.instances], c.took[scripted][b.instances]
		fmt.Printf("%2d at one time: ours median %s, p99 %s; script median %s, p99 %s; ratio %.2f (%d of each)\n", b.instances,
			milliseconds(kit.Median(o)), milliseconds(kit.P99(o)), milliseconds(kit.Median(s)), milliseconds(kit.P99(s)), ratio(o, s), len(o))
	}
	single := batches[0].instances
	o, s := c.took[ours][single], c.took[scripted][single]
	slices.SortFunc(c.calls, func(a, b []string) int { return len(a) - len(b) })
	calls := c.calls[len(c.calls)/2]
	start := kit.Median(c.starts)
	fmt.Printf("of single ones, libvirt's start of the domain takes %s; the rest is %s of ours and %s of the script's\n",
		milliseconds(start), milliseconds(kit.Median(o)-start), milliseconds(kit.Median(s)-start))
	fmt.Println("one create calls", strings.Join(calls, ", "))
	fmt.Println(kit.Verdict(kit.Target{Name: "R", Value: ratio(o, s), Bound: 0.5, AtMost: true}))
	fmt.Printf("create: ours %.0f ms, script %.0f ms, ratio %.2f; RPCs a create %d; apply to started %.0f ms\n",
		kit.Median(o).Seconds()*1e3, kit.Median(s).Seconds()*1e3, ratio(o, s), len(calls), kit.Median(applied).Seconds()*1e3)
}

func ratio(o, s []time.Duration) float64 { return kit.Median(o).Seconds() / kit.Median(s).Seconds() }
