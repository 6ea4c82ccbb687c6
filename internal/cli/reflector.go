// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/reflector"
)

func newReflector(s streams) *cobra.Command {
	var logs LogFlags
	var listen string
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Answer every request with the address that it came from",
		Long: `An HTTP server that answers every GET with the address that it came from, as JSON or with ?format=text as text, and logs each
request as one line. Probes go to it through each proxy; put it where the guests' traffic comes out as the world sees it.`,
		Example: `  egress-proxies reflector --listen :8080
  curl -x http://PROXY:3128 --proxy-user USER http://REFLECTOR:8080/`,
		Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(s.err)
			if err != nil {
				return err
			}
			listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			log.Info("reflector listens", "address", listener.Addr().String())
			return reflector.Serve(cmd.Context(), listener, log)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":8080", "`ADDRESS` to listen on: host:port; without a host, IPv4 and IPv6")
	logs.Bind(cmd.Flags())
	return cmd
}
