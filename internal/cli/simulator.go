// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/simulated"
)

// simulatorSocket is the socket of a simulator, which each of its commands needs.
type simulatorSocket string

// client asks the simulator behind the socket.
func (s simulatorSocket) client(ask func(*simulated.Client) error) error {
	if err := s.check(); err != nil {
		return err
	}
	client := simulated.NewClient(string(s))
	defer client.Close()
	return ask(client)
}

func (s simulatorSocket) check() error {
	if s == "" {
		return usageError{errors.New("--socket: name the socket of the simulator, as the entry in the providers file has it")}
	}
	return nil
}

func newSimulator(s streams) *cobra.Command {
	var logs LogFlags
	var socket simulatorSocket
	cmd := &cobra.Command{
		Use:   "simulator",
		Short: "Run simulated hosts in a process of their own",
		Long: `Simulated hosts, whose instances are listeners on loopback addresses with chosen delays and faults. Entries of type simulated
with this socket make their instances here, so that these outlive the operator. Nothing is kept on disk: they end with this process.`,
		Example: `  egress-proxies simulator --socket /tmp/simulator.sock
  egress-proxies simulator list --socket /tmp/simulator.sock
  egress-proxies simulator fault set dies-after-60s --proxies 'shop-*' --socket /tmp/simulator.sock`,
		Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := socket.check(); err != nil {
				return err
			}
			log, err := logs.Logger(s.err)
			if err != nil {
				return err
			}
			listener, err := simulated.Listen(cmd.Context(), string(socket))
			if err != nil {
				return fmt.Errorf("--socket: %w", err)
			}
			world := simulated.NewWorld(simulated.WorldOptions{Version: version(), Log: log})
			defer world.Close()
			log.Info("simulator serves", "socket", string(socket))
			return simulated.Serve(cmd.Context(), listener, world)
		},
	}
	cmd.PersistentFlags().StringVar((*string)(&socket), "socket", "", "`PATH` of the simulator's unix socket")
	logs.Bind(cmd.Flags())
	cmd.AddCommand(newSimulatorList(s, &socket), newSimulatorFault(s, &socket))
	return cmd
}

func newSimulatorList(s streams, socket *simulatorSocket) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "List the instances of a simulator, whoever they belong to",
		Example: "  egress-proxies simulator list --socket /tmp/simulator.sock -o json",
		Args:    UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("--output %q: use table or json", output)}
			}
			return socket.client(func(c *simulated.Client) error {
				records, err := c.Instances(cmd.Context())
				if err != nil {
					return err
				}
				if output == "json" {
					encoder := json.NewEncoder(s.out)
					encoder.SetIndent("", "  ")
					return encoder.Encode(records)
				}
				return writeRecords(s.out, records)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "`FORMAT`: table or json")
	return cmd
}

func writeRecords(out io.Writer, records []simulated.Record) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "HOST\tPROXY\tCLUSTER\tENTRY\tSTATE\tADDRESS\tPORT\tFAULTS\tINSTANCE")
	for _, r := range records {
		address, port := "-", "closed"
		if len(r.Addresses) > 0 {
			address = r.Addresses[0].String()
		}
		if r.Listening {
			port = fmt.Sprint(r.Shape.Port)
		}
		fmt.Fprintf(table, "%s\t%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Host, r.Namespace, r.Name, r.Cluster, r.Entry, r.State, address, port, orDash(strings.Join(r.Faults, ",")), r.InstanceName)
	}
	return table.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newSimulatorFault(s streams, socket *simulatorSocket) *cobra.Command {
	cmd := &cobra.Command{
		Use: "fault", Short: "Set, clear and list faults at run time", Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var rule simulated.Rule
	set := &cobra.Command{
		Use: "set FAULT", Short: "Set a fault until it is cleared",
		Example: `  egress-proxies simulator fault set host-unreachable --hosts sim-1 --socket /tmp/simulator.sock
  egress-proxies simulator fault set no-egress --proxies 'shop-*' --socket /tmp/simulator.sock`,
		Args: UsageArgs(cobra.ExactArgs(1)), ValidArgs: config.FaultNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule.Fault = args[0]
			return socket.client(func(c *simulated.Client) error { return c.SetFault(cmd.Context(), rule) })
		},
	}
	set.Flags().StringVar(&rule.Hosts, "hosts", "", "`PATTERN` over the names of hosts; all when left out")
	set.Flags().StringVar(&rule.Proxies, "proxies", "", "`PATTERN` over the names of Proxies; all, and the hosts themselves, when left out")
	clearFaults := &cobra.Command{
		Use: "clear [FAULT]", Short: "Clear a fault that was set at run time, or all",
		Args: UsageArgs(cobra.MaximumNArgs(1)), ValidArgs: config.FaultNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return socket.client(func(c *simulated.Client) error {
				count, err := c.ClearFaults(cmd.Context(), strings.Join(args, ""))
				if err == nil {
					fmt.Fprintf(s.out, "%d cleared\n", count)
				}
				return err
			})
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List the faults that were set at run time, or with --known all that there are",
		Args: UsageArgs(cobra.NoArgs),
	}
	known := list.Flags().Bool("known", false, "list all faults with their meaning, without asking a simulator")
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		if *known {
			return writeKnownFaults(s.out)
		}
		return socket.client(func(c *simulated.Client) error { return writeFaults(cmd.Context(), s.out, c) })
	}
	cmd.AddCommand(set, clearFaults, list)
	return cmd
}

func writeKnownFaults(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FAULT\tSHOWS\tMEANING")
	for _, f := range config.KnownFaults() {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Name, f.Shows, f.Meaning)
	}
	return table.Flush()
}

func writeFaults(ctx context.Context, out io.Writer, c *simulated.Client) error {
	rules, err := c.Faults(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FAULT\tHOSTS\tPROXIES")
	for _, r := range rules {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Fault, orDash(r.Hosts), orDash(r.Proxies))
	}
	return table.Flush()
}
