// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/config/samples"
	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/background"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/progress"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/up"
)

func newUp(dataDir *string) *cobra.Command {
	var flags commandFlags
	var noSamples bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the server in the background, with three sample Proxies, and say how to use them",
		Long: `Start the server in the background where it does not run, make the sample Proxies that are missing, wait until they are Ready,
and print lines to paste. Run again, it changes nothing. "down" stops the server.`,
		Example: `  egress-standalone up
  egress-standalone --data-dir /srv/egress up --providers /etc/egress/providers.yaml --no-samples`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: interruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			tell := newProgress(cmd)
			return flags.runLocked(ctx, *dataDir, tell, func(ctx context.Context, server background.Server) error {
				o := up.Options{Server: server, Program: program(), Out: cmd.OutOrStdout(), Tell: tell}
				file, err := flags.loadProviders(server.Paths)
				if err != nil {
					return err
				}
				o.Target = file.Reflectors[0].URL
				if o.Samples, err = chooseSamples(noSamples, func(entry string) bool { _, ok := file.Entry(entry); return ok }, tell); err != nil {
					return err
				}
				return up.Run(ctx, o)
			})
		}),
	}
	flags.bind(command.Flags())
	command.Flags().BoolVar(&noSamples, "no-samples", false, "make no sample Proxies, and wait for none")
	return command
}

// chooseSamples are those whose entry the providers file has.
func chooseSamples(none bool, hasEntry func(string) bool, tell *progress.Printer) ([]*v1alpha1.Proxy, error) {
	if none {
		return nil, nil
	}
	all, err := up.Samples(samples.Local)
	if err != nil {
		return nil, err
	}
	if entry := all[0].Spec.Provider; !hasEntry(entry) {
		tell.Say("no sample Proxies: the providers file has no entry %q", entry)
		return nil, nil
	}
	return all, nil
}

// commandFlags are those of a command that starts or stops the server.
type commandFlags struct {
	serverFlags
	timeout time.Duration
}

func (f *commandFlags) bind(flags *pflag.FlagSet) {
	f.serverFlags.bind(flags)
	flags.DurationVar(&f.timeout, "timeout", 3*time.Minute, "how long to wait, in all")
}

// runLocked runs such a command, alone and within its time.
func (f *commandFlags) runLocked(ctx context.Context, dataDir string, tell *progress.Printer, run func(context.Context, background.Server) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not within --timeout %s", f.timeout))
	defer cancel()
	paths, err := resolve(dataDir)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	release, err := paths.LockCommand(ctx, func() { tell.Waiting("another command on data directory " + paths.Root()) })
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, background.Server{Paths: paths, Executable: executable, Args: f.args(paths)}), release())
}

func newProgress(cmd *cobra.Command) *progress.Printer {
	return &progress.Printer{Out: cmd.ErrOrStderr(), Terminal: cli.IsTerminal(cmd.ErrOrStderr()), Now: time.Now}
}
