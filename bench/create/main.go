// SPDX-License-Identifier: Apache-2.0

//go:build live

// Command create makes VMs on a real libvirt host with two tools in turns: our Create, and a script of genisoimage, qemu-img and virsh over one SSH
// connection. Then it applies Proxies to a real API with the real operator. It prints how long each takes until the domain is started; ../README.md says
// how to read that. A target that is missed is named in the line before the last, and is no error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// hostNumber is the benchmark's own host: live tests use others.
const hostNumber = 53

// batches are how many instances are asked for at one time, and how many turns each tool has with that in a round.
var batches = []struct{ instances, turns int }{{1, 10}, {10, 2}, {30, 1}}

var rounds = flag.Int("rounds", 3, "how often all is done")

func main() {
	flag.Parse()
	log.SetLogger(logr.Discard())
	kit.Main("create", run)
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "egress-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kit.Say("bringing up a libvirt host")
	host, err := kvmhost.Start(ctx, hostNumber)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kit.TakeDown(host)) }()
	compared, err := compare(ctx, dir, host)
	if err != nil {
		return err
	}
	applied, err := applyAll(ctx, dir, batches[0].turns**rounds)
	if err != nil {
		return err
	}
	report(compared, applied)
	return nil
}

// tool makes instances.
type tool interface {
	name() string
	// make makes n instances that are asked for at one time, and returns how long after that each was started.
	make(ctx context.Context, n int) ([]time.Duration, error)
	// remove takes them away.
	remove(ctx context.Context) error
}

// comparison is how long the instances took, by tool and by how many were asked for at one time.
type comparison struct {
	took map[string]map[int][]time.Duration
	// calls are those of one Create each.
	calls [][]string
	// starts are what libvirt took for the start in one Create each.
	starts []time.Duration
}

// compare lets the tools take turns, each turn another one first.
func compare(ctx context.Context, dir string, host *kvmhost.Host) (c comparison, err error) {
	o, err := newOurs(ctx, host)
	if err != nil {
		return c, err
	}
	defer o.close()
	s, err := newScript(ctx, dir, host, o)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	tools := []tool{o, s}
	c.took = map[string]map[int][]time.Duration{ours: {}, scripted: {}}
	for round := range *rounds {
		for _, b := range batches {
			for turn := range b.turns {
				for i := range tools {
					t := tools[(turn+i)%len(tools)]
					took, err := t.make(ctx, b.instances)
					if err = errors.Join(err, t.remove(ctx)); err != nil {
						return c, fmt.Errorf("%d at one time, %s: %w", b.instances, t.name(), err)
					}
					c.took[t.name()][b.instances] = append(c.took[t.name()][b.instances], took...)
				}
			}
			kit.Say("round %d, %d at one time, medians so far: ours %s, script %s", round+1, b.instances,
				milliseconds(kit.Median(c.took[ours][b.instances])), milliseconds(kit.Median(c.took[scripted][b.instances])))
		}
	}
	c.calls, c.starts = o.calls, o.starts
	return c, nil
}
