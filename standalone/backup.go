// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/backup"
)

func newBackup(dataDir *string) *cobra.Command {
	var providers string
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write everything that the server keeps into one file, while it runs or while it does not",
		Long: `Write everything that the server keeps into a new file: the objects of the API, the identity that marks and names on the hosts are
made of, keys and certificates, and the providers file (not the keys that it names). The file holds secrets, and has mode 0600. It is
read back and checked before the command ends well.`,
		Example: `  egress-standalone backup egress-$(date +%F).tar.gz`,
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: interruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			paths, err := resolve(*dataDir)
			if err != nil {
				return err
			}
			summary, err := backup.Write(ctx, backup.Source{Paths: paths, Providers: providers, Program: program()}, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d objects, %d KiB, checked. It holds secrets: keys, and the passwords of all Proxies.\n",
				args[0], summary.Keys, summary.Size>>10)
			return err
		}),
	}
	command.Flags().StringVar(&providers, "providers", "", "the providers `FILE` (default: providers.yaml in the data directory)")
	return command
}

func newRestore(dataDir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data directory of a backup",
		Long: `Make a data directory, which must be empty or missing, of a backup. A server on it has the same objects, credentials and
certificates, so that kubeconfigs of before work. Never run it beside the one that the backup was made of: both would own the same
instances.`,
		Example: `  egress-standalone --data-dir /srv/egress restore egress-2026-01-31.tar.gz
  egress-standalone --data-dir /srv/egress up`,
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: interruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			paths, err := resolve(*dataDir)
			if err != nil {
				return err
			}
			if err := backup.Restore(ctx, args[0], paths, program()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored into %s; start it with: egress-standalone --data-dir %s up\n", paths.Root(), paths.Root())
			return err
		}),
	}
}
