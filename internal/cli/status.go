// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/overview"
)

const statusLong = `Show all hosts, and the Proxies that are not Ready, on one screen; --all shows the others too.

It needs the right to list Proxies and ProviderHealths, and nothing of the operator's.`

const (
	// watchEvery is the time between two screens.
	watchEvery = 2 * time.Second
	// clearScreen moves to the upper left, and wipes what is below.
	clearScreen = "\x1b[H\x1b[2J"
)

type statusFlags struct {
	api       apiFlags
	namespace string
	output    output
	all       bool
	watch     bool
}

func newStatus(s streams) *cobra.Command {
	var flags statusFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show hosts and Proxies on one screen, what is wrong first", Long: statusLong,
		Example: `  egress-proxies status
  egress-proxies status --watch
  egress-proxies status -o json | jq '.proxies[] | select(.ready | not) | .name'`,
		Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := flags.api.client()
			if err != nil {
				return err
			}
			return flags.run(cmd.Context(), api, s.out)
		},
	}
	flags.api.bind(cmd.Flags())
	flags.output.bind(cmd.Flags())
	cmd.Flags().StringVarP(&flags.namespace, "namespace", "n", "", "only the Proxies of this `NAMESPACE` (default: all)")
	cmd.Flags().BoolVarP(&flags.all, "all", "a", false, "also Proxies that are Ready")
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "go on, until it is interrupted")
	return cmd
}

// run shows the state once, or with --watch until ctx ends. While it watches, an API server that is away is told, and asked again.
func (f *statusFlags) run(ctx context.Context, api client.Client, out io.Writer) error {
	if !f.watch {
		return f.show(ctx, api, out)
	}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		if IsTerminal(out) && !f.output.json() {
			if _, err := io.WriteString(out, clearScreen); err != nil {
				return err
			}
		}
		if err := f.show(ctx, api, out); err != nil && ctx.Err() == nil {
			if _, err := fmt.Fprintln(out, err); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *statusFlags) show(ctx context.Context, api client.Client, out io.Writer) error {
	var healths v1alpha1.ProviderHealthList
	if err := api.List(ctx, &healths); err != nil {
		return fmt.Errorf("list the ProviderHealths: %w", err)
	}
	var proxies v1alpha1.ProxyList
	if err := api.List(ctx, &proxies, client.InNamespace(f.namespace)); err != nil {
		return fmt.Errorf("list the Proxies: %w", err)
	}
	seen := overview.Of(healths.Items, proxies.Items)
	if f.output.json() {
		return writeJSON(out, seen)
	}
	return seen.Table(out, overview.Style{All: f.all, Colours: colours(out), Now: time.Now()})
}

// colours are for people at a terminal who did not ask for none: https://no-color.org.
func colours(out io.Writer) bool { return IsTerminal(out) && os.Getenv("NO_COLOR") == "" }

func writeJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
