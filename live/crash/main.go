// SPDX-License-Identifier: Apache-2.0

//go:build live

// Command crash kills the whole standalone with SIGKILL at random moments while Proxies are being created and deleted, starts it
// again, and looks whether all ends as it should: on a real libvirt host, and on simulated ones that outlive the standalone. It exits
// with 1 where anything was lost, leaked or touched.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	kills := flag.Int("kills", 20, "how often the standalone is killed in each world")
	seed := flag.Uint64("seed", 0, "seed of the randomness; 0 takes a new one")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	total, err := run(ctx, *kills, *seed)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash: failed:", err)
	}
	fmt.Printf("crash: %d kills, %d converged, %d leaked, %d foreign touched\n", total.kills, total.converged, total.leaked, total.touched)
	if err != nil || !total.clean() || total.kills != 2**kills {
		os.Exit(1)
	}
}

// tally is what became of the kills.
type tally struct{ kills, converged, leaked, touched int }

func (t tally) clean() bool { return t.converged == t.kills && t.leaked == 0 && t.touched == 0 }

func (t *tally) add(other tally) {
	t.kills += other.kills
	t.converged += other.converged
	t.leaked += other.leaked
	t.touched += other.touched
}

// run kills in each world in turn.
func run(ctx context.Context, kills int, seed uint64) (total tally, err error) {
	// Clients of the API log nothing of their own.
	log.SetLogger(logr.Discard())
	fmt.Printf("seed %d: -seed %d repeats this order of operations and moments\n", seed, seed)
	for _, open := range []func(context.Context, string) (world, error){openKVM, openSimulated} {
		one, err := runIn(ctx, open, kills, seed)
		total.add(one)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func runIn(ctx context.Context, open func(context.Context, string) (world, error), kills int, seed uint64) (_ tally, err error) {
	dir, err := os.MkdirTemp("", "egress-live-crash-")
	if err != nil {
		return tally{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w, err := open(ctx, dir)
	if err != nil {
		return tally{}, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, w.close(closing))
	}()
	d := newDrill(w, dir, seed)
	defer d.standalone.kill()
	err = d.run(ctx, kills)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", w.name(), err, d.standalone.tail())
	}
	return d.tally, err
}
