// SPDX-License-Identifier: Apache-2.0

// Command egress-standalone is the whole of Egress Proxies in one process, for machines that have no cluster: a database, the
// Kubernetes API on 127.0.0.1, the operator, and kubectl.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	// Before the API server is initialised.
	_ "github.com/egress-proxies/egress-proxies-operator/standalone/internal/quiet"
)

// buildVersion is set by the linker.
var buildVersion = "devel"

// program is what stands in what this program writes.
func program() string { return "egress-standalone " + buildVersion }

const long = `Exit IPs as Kubernetes resources, without a cluster: a database, the Kubernetes API on 127.0.0.1, the operator and kubectl in
one program. "up" is all that most people need.

Exit codes: 0 ended as asked; 1 could not do it; 2 wrong flags, arguments or configuration. Those of "kubectl" are kubectl's own.`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	return cli.Execute(context.Background(), newRoot(stdout, stderr), args, stdout, stderr)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	var dataDir string
	root := &cobra.Command{
		Use:              "egress-standalone",
		Short:            "Exit IPs as Kubernetes resources, without a cluster",
		Long:             long,
		Version:          versions(),
		TraverseChildren: true,
		Args:             cli.UsageArgs(cobra.NoArgs),
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("egress-standalone {{.Version}}\n")
	root.PersistentFlags().StringVar(&dataDir, "data-dir", datadir.Default(),
		"`FOLDER` that holds everything the server keeps (environment: EGRESS_DATA_DIR)")
	root.AddCommand(newUp(&dataDir), newDown(&dataDir), newServe(&dataDir), newKubectl(&dataDir), newBackup(&dataDir), newRestore(&dataDir), newVersion())
	for _, command := range cli.Commands(stdout, stderr) {
		makeInterruptible(command)
		root.AddCommand(command)
	}
	return root
}

// resolve finds the data directory; to name none is a mistake of who called.
func resolve(dataDir string) (datadir.Paths, error) {
	paths, err := datadir.Resolve(dataDir)
	if err != nil {
		return datadir.Paths{}, cli.UsageError(err)
	}
	return paths, nil
}

// makeInterruptible gives a command and those below it a context that ends with the signals.
func makeInterruptible(command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = interruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			cmd.SetContext(ctx)
			return run(cmd, args)
		})
	}
	for _, below := range command.Commands() {
		makeInterruptible(below)
	}
}

// interruptible gives a command a context that ends with SIGINT and SIGTERM. A second signal ends the process at once.
func interruptible(run func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		context.AfterFunc(ctx, stop)
		return run(ctx, cmd, args)
	}
}

func versions() string {
	return fmt.Sprintf("%s (Kubernetes %s)", buildVersion, version.Get().GitVersion)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the Kubernetes API in it", Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "egress-standalone", versions())
			return err
		},
	}
}
