// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/background"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/down"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/progress"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/up"
)

func newDown(dataDir *string) *cobra.Command {
	var flags commandFlags
	var wipe bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop the server of the data directory; with --wipe, delete the Proxies and the data first",
		Long: `Stop the server of the data directory and wait until it has ended. The data stay, and "up" goes on with them.

With --wipe, first delete the Proxies of all namespaces, with their instances on all hosts, while the server runs (it is started for
that where it does not run); then stop it; then delete the data. Where an instance cannot be deleted, everything else stays too.`,
		Example: `  egress-standalone down
  egress-standalone down --wipe`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: interruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			paths, err := resolve(*dataDir)
			if err != nil {
				return err
			}
			tell := newProgress(cmd)
			if _, err := os.Stat(paths.Root()); errors.Is(err, os.ErrNotExist) {
				tell.Say("no server runs: there is no data directory %s", paths.Root())
				return nil
			}
			return flags.runLocked(ctx, *dataDir, tell, func(ctx context.Context, server background.Server) error {
				if wipe {
					return wipeServer(ctx, server, &flags.serverFlags, tell)
				}
				return stopServer(ctx, server, tell)
			})
		}),
	}
	flags.bind(command.Flags())
	command.Flags().BoolVar(&wipe, "wipe", false, "delete all Proxies with their instances, and then the data")
	return command
}

func stopServer(ctx context.Context, server background.Server, tell *progress.Printer) error {
	stopped, err := server.Stop(ctx, tell)
	switch {
	case err != nil:
		return err
	case stopped:
		tell.Say("the server has ended; its data stay in %s", server.Paths.Root())
	default:
		tell.Say("no server runs on data directory %s", server.Paths.Root())
	}
	return nil
}

func wipeServer(ctx context.Context, server background.Server, flags *serverFlags, tell *progress.Printer) error {
	exists, err := server.Paths.Exists()
	if err != nil {
		return err
	}
	if exists {
		// A server that is started for this needs it; said here, it costs no start.
		if _, err := flags.loadProviders(server.Paths); err != nil {
			return err
		}
		running, err := server.Ensure(ctx, tell)
		if err != nil {
			return err
		}
		client, err := up.Client(running.Config)
		if err != nil {
			return err
		}
		if err := down.DeleteProxies(ctx, client, tell); err != nil {
			return fmt.Errorf("%w\nthe server goes on (process %d) and keeps trying; the data are kept", err, running.Pid)
		}
	}
	if _, err := server.Stop(ctx, tell); err != nil {
		return err
	}
	dir, err := datadir.Open(server.Paths.Root(), program())
	if err != nil {
		return err
	}
	err = errors.Join(down.Erase(dir, tell), dir.Close())
	if err == nil {
		tell.Say("the server has ended, and its data are deleted from %s", server.Paths.Root())
	}
	return err
}
