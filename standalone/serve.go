// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/instance"
)

func newServeCommand(dataDir *string) *cobra.Command {
	var port, verbosity int
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API on 127.0.0.1 until SIGTERM or SIGINT",
		Long: "Serve the API on 127.0.0.1 until SIGTERM or SIGINT. Once it answers, DATA-DIR/kubeconfig is\n" +
			"written and a line that begins with \"ready:\" is printed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configureLogs(verbosity); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			// A second signal ends a stop that takes too long.
			context.AfterFunc(ctx, stop)
			begin := time.Now()
			return instance.Run(ctx, instance.Options{DataDir: *dataDir, Port: port}, func(r instance.Ready) {
				fmt.Fprintf(cmd.OutOrStdout(), "ready: %s after %.1f s, kubeconfig %s\n",
					r.Server, time.Since(begin).Seconds(), r.Kubeconfig)
			})
		},
	}
	command.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	command.Flags().IntVarP(&verbosity, "verbosity", "v", 0,
		"0 prints only what ends the process; 1 and more log the control plane's work on stderr")
	return command
}

// configureLogs keeps the control plane quiet: what it logs in normal work looks like
// trouble to people who do not know it.
func configureLogs(verbosity int) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if verbosity > 0 {
		return flags.Set("v", strconv.Itoa(verbosity))
	}
	klog.SetOutput(io.Discard)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}
