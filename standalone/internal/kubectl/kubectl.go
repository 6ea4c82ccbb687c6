// SPDX-License-Identifier: Apache-2.0

// Package kubectl carries kubectl, so that nobody needs to install one beside the server.
package kubectl

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

// Run runs kubectl with its arguments. Where it fails, it prints why and ends the process.
func Run(args []string) {
	// kubectl logs already while it builds its commands.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(args))
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{
		Arguments: append([]string{"kubectl"}, args...),
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
			WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams),
		IOStreams: streams,
	})
	command.SetArgs(args)
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
}

// UseDataDir makes the server of this data directory the one that kubectl talks to. A
// KUBECONFIG in the environment goes first unless the directory was asked for by flag.
func UseDataDir(path string, byFlag bool, args []string) error {
	if path == "" || (os.Getenv("KUBECONFIG") != "" && !byFlag) || needsNoServer(args) || namesServer(args) {
		return nil
	}
	paths, err := datadir.Resolve(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(paths.Kubeconfig()); err != nil {
		return fmt.Errorf("no server runs in data directory %s: start one with egress-standalone --data-dir %s up (%w)", path, path, err)
	}
	if err := os.Setenv("KUBECONFIG", paths.Kubeconfig()); err != nil {
		return err
	}
	if os.Getenv("KUBECACHEDIR") != "" {
		return nil
	}
	return os.Setenv("KUBECACHEDIR", paths.KubectlCache())
}

// needsNoServer is true of what kubectl answers by itself.
func needsNoServer(args []string) bool {
	if len(args) == 0 {
		return true
	}
	return slices.Contains([]string{"help", "options", "completion", "__complete", "__completeNoDesc"}, args[0]) ||
		slices.Contains(args, "--help") || slices.Contains(args, "-h") || slices.Contains(args, "--client")
}

// namesServer is true of arguments that say themselves which server is meant.
func namesServer(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--kubeconfig" || name == "--server" || name == "-s"
	})
}
