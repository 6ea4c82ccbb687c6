// SPDX-License-Identifier: Apache-2.0

// Command egress-proxies is the operator and what goes with it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
