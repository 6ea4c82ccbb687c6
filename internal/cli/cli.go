// SPDX-License-Identifier: Apache-2.0

// Package cli is the commands of egress-proxies: their flags, and the wiring of what they run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

// Exit codes.
const (
	// ExitOK: ended as asked, also by SIGINT or SIGTERM.
	ExitOK = 0
	// ExitFailed: could not do what was asked.
	ExitFailed = 1
	// ExitUsage: wrong flags, arguments or configuration.
	ExitUsage = 2
)

const long = `Exit IPs as Kubernetes resources: each Proxy becomes a VM with its own exit on a KVM host that you own.

Exit codes: 0 ended as asked; 1 could not do it; 2 wrong flags, arguments or configuration.`

// usageError is a mistake of who called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// streams are where a command writes to.
type streams struct{ out, err io.Writer }

// Decorator wraps the Backend of each host: with faults in a drill, say.
type Decorator func(libvirt.Backend) libvirt.Backend

// Run runs the command line args until it ends or ctx does, and returns the exit code. Decorators wrap in the order given.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, decorators ...Decorator) int {
	root := &cobra.Command{
		Use: "egress-proxies", Short: "Exit IPs as Kubernetes resources", Long: long, Version: version(),
		Args:        UsageArgs(cobra.NoArgs),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: displayName(os.Args[0])},
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	s := streams{stdout, stderr}
	root.AddCommand(newOperator(s, decorators), newStatus(s), newAbandon(s), newVersion(s))
	root.AddCommand(Commands(stdout, stderr)...)
	return Execute(ctx, root, args, stdout, stderr)
}

// displayName is how help calls a program: kubectl runs one that is named kubectl-egress as its own command.
func displayName(program string) string {
	if filepath.Base(program) == "kubectl-egress" {
		return "kubectl egress"
	}
	return "egress-proxies"
}

// Commands are those that need no Kubernetes API: for programs that have them among their own.
func Commands(stdout, stderr io.Writer) []*cobra.Command {
	s := streams{stdout, stderr}
	return []*cobra.Command{newReflector(s), newSimulator(s), newConfig(s), newConsole(s), newDoctor(s)}
}

// Execute runs a program's commands, and returns the exit code. It says what went wrong in one line on stderr.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return UsageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	_, _ = fmt.Fprintln(stderr, root.Name()+": "+err.Error())
	var usage usageError
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailed
}

// UsageError makes an error one of who called: its exit code is ExitUsage.
func UsageError(err error) error { return usageError{err} }

// UsageArgs makes a mistake in the arguments one of usage.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, "egress-proxies", version())
			return err
		},
	}
}

// IsTerminal says whether people read along.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
