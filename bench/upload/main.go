// SPDX-License-Identifier: Apache-2.0

//go:build live

// Command upload puts an image on a real libvirt host over SSH with three tools in turns: ours, as a fetch does it, from a file:// image to the published
// base; virsh vol-upload; and ssh with cat. It prints how they compare; ../README.md says how to read that. A target that is missed is named in the line
// before the last, and is no error.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"github.com/egress-proxies/egress-proxies-operator/bench/internal/kit"
	"github.com/egress-proxies/egress-proxies-operator/internal/link"
	"github.com/egress-proxies/egress-proxies-operator/test/kvmhost"
)

// hostNumber is the benchmark's own host: live tests use others.
const hostNumber = 45

var (
	rounds  = flag.Int("rounds", 5, "how often each tool takes its turn")
	mib     = flag.Int64("mib", 1024, "length of the image in MiB")
	profile = flag.String("profile", "", "write a CPU profile of our last upload of random data to this file")
)

func main() {
	flag.Parse()
	if task := os.Getenv(taskVariable); task != "" {
		kit.Exit("upload", perform(task))
	}
	kit.Main("upload", run)
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "egress-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kit.Say("bringing up a libvirt host, and making two images of %d MiB", *mib)
	host, err := kvmhost.Start(ctx, hostNumber)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kit.TakeDown(host)) }()
	random, err := randomImage(filepath.Join(dir, "random"), *mib<<20)
	if err != nil {
		return err
	}
	sparse, err := sparseImage(filepath.Join(dir, "sparse"), *mib<<20)
	if err != nil {
		return err
	}
	cipher := link.Ciphers()[0]
	b := &bench{dir: dir, host: host}
	own, err := b.compare(ctx, "own ciphers", random, "", ours, virsh, cat)
	if err != nil {
		return err
	}
	same, err := b.compare(ctx, "all with "+cipher, random, cipher, ours, virsh, cat)
	if err != nil {
		return err
	}
	holes, err := b.compare(ctx, "three quarters holes", sparse, "", ours, virsh)
	if err != nil {
		return err
	}
	report(*mib<<20, own, same, holes, b.peak)
	return nil
}
