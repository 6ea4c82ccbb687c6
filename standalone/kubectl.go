// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/kubectl"
)

func newKubectl(dataDir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [arguments]",
		Short: "kubectl, for the server of the data directory unless KUBECONFIG names another",
		Long: `kubectl, for the server of the data directory. KUBECONFIG goes before EGRESS_DATA_DIR and the default, and --data-dir, given
before the word kubectl, goes before all.`,
		Example: `  egress-standalone kubectl get proxies
  egress-standalone --data-dir /srv/egress kubectl explain proxy.spec`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := kubectl.UseDataDir(*dataDir, cmd.Flag("data-dir").Changed, args); err != nil {
				return err
			}
			kubectl.Run(args)
			return nil
		},
	}
}
