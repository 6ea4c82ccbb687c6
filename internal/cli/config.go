// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
)

func newConfig(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Work with the providers file", Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "check FILE",
		Short:   "Say what is wrong with a providers file: everything at once, each with its line",
		Example: "  egress-proxies config check providers.yaml",
		Args:    UsageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := LoadProviders(args[0])
			if err != nil {
				return err
			}
			hosts := 0
			for _, e := range file.Entries {
				hosts += len(e.Hosts)
			}
			_, err = fmt.Fprintf(s.out, "%s: ok: entries %s; hosts: %d; reflectors: %d\n", args[0], strings.Join(file.EntryNames(), ", "), hosts, len(file.Reflectors))
			return err
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the providers file, for editors",
		Example: "  egress-proxies config schema > providers.schema.json",
		Args:    UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := s.out.Write(config.Schema)
			return err
		},
	})
	return cmd
}

// LoadProviders reads a providers file and sees that the files it names can be read.
func LoadProviders(path string) (*config.File, error) {
	file, err := config.Load(path)
	if err == nil {
		err = config.CheckFiles(file)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("the providers file cannot be used:\n%w", err)}
	}
	return file, nil
}
