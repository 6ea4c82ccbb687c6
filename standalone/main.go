// SPDX-License-Identifier: Apache-2.0

// Command egress-standalone is the Kubernetes API that the operator needs, in one process
// for machines that have no cluster: a database, the API on 127.0.0.1, and kubectl.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/kubectl"
)

// buildVersion is set by the linker.
var buildVersion = "devel"

func main() {
	if err := newRootCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "egress-standalone:", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	var dataDir string
	root := &cobra.Command{
		Use:              "egress-standalone",
		Short:            "The Kubernetes API for the Egress Proxies Operator, in one process",
		SilenceUsage:     true,
		SilenceErrors:    true,
		TraverseChildren: true,
		Args:             cobra.NoArgs,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&dataDir, "data-dir", os.Getenv("EGRESS_DATA_DIR"),
		"folder that holds everything the server keeps (environment: EGRESS_DATA_DIR)")
	root.AddCommand(newServeCommand(&dataDir), newKubectlCommand(&dataDir), newVersionCommand())
	return root
}

func newKubectlCommand(dataDir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [arguments]",
		Short: "kubectl, for the server of the data directory unless KUBECONFIG names another",
		Long: "kubectl, for the server of the data directory. KUBECONFIG goes before EGRESS_DATA_DIR, and\n" +
			"--data-dir, given before the word kubectl, goes before both.",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := kubectl.UseDataDir(*dataDir, cmd.Flag("data-dir").Changed); err != nil {
				return err
			}
			kubectl.Run(args)
			return nil
		},
	}
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the Kubernetes API in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "egress-standalone %s (Kubernetes %s)\n", buildVersion, version.Get().GitVersion)
			return err
		},
	}
}
