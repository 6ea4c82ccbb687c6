// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/egress-proxies/egress-proxies-operator/config/crd"
	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/reflector"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/crds"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/instance"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/providersfile"
)

const (
	noReflector      = "none"
	defaultReflector = "127.0.0.11:8910"
)

// errRenew ends a server that starts itself anew.
var errRenew = errors.New("the server starts itself anew")

// serverFlags are those of a server, also of one that another command starts.
type serverFlags struct {
	port                          int
	providers, reflector, metrics string
}

func (f *serverFlags) bind(flags *pflag.FlagSet) {
	flags.IntVar(&f.port, "port", 0, "`PORT` of the API on 127.0.0.1; 0 takes that of the last start, or a free one")
	flags.StringVar(&f.providers, "providers", "", "the providers `FILE` (default: providers.yaml in the data directory, made when missing)")
	flags.StringVar(&f.reflector, "reflector", defaultReflector, "`ADDRESS` that serves a reflector, or none")
	flags.StringVar(&f.metrics, "metrics-bind-address", "0", "`ADDRESS` that serves the operator's /metrics, or 0 for none")
}

// args make another process of this program serve with the same flags.
func (f *serverFlags) args(paths datadir.Paths) []string {
	return []string{
		"serve", "--data-dir", paths.Root(), "--port", strconv.Itoa(f.port), "--providers", f.providersFile(paths),
		"--reflector", f.reflector, "--metrics-bind-address", f.metrics,
	}
}

func (f *serverFlags) providersFile(paths datadir.Paths) string {
	if f.providers == "" {
		return paths.Providers()
	}
	// A server in the background has another working directory.
	if absolute, err := filepath.Abs(f.providers); err == nil {
		return absolute
	}
	return f.providers
}

// loadProviders reads the providers file; that of the data directory is made where there is none.
func (f *serverFlags) loadProviders(paths datadir.Paths) (*config.File, error) {
	path := f.providersFile(paths)
	if path == paths.Providers() {
		if err := providersfile.Ensure(path); err != nil {
			return nil, err
		}
	}
	return cli.LoadProviders(path)
}

type serveFlags struct {
	serverFlags
	apiOnly bool
	renew   time.Duration
	logs    logFlags
}

func newServe(dataDir *string) *cobra.Command {
	var flags serveFlags
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API on 127.0.0.1, with the operator, until SIGTERM or SIGINT",
		Long: `Serve the API on 127.0.0.1, with the operator, until SIGTERM or SIGINT. Once the API answers, DATA-DIR/kubeconfig is written and
a line that begins with "ready:" is printed.`,
		Example: `  egress-standalone serve
  egress-standalone --data-dir /srv/egress serve --providers /etc/egress/providers.yaml --reflector none --port 6443`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: interruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			err := flags.run(ctx, cmd, *dataDir)
			if errors.Is(err, errRenew) {
				// Everything has ended; the same process goes on as a new one, also where its file was replaced meanwhile.
				err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
			}
			return err
		}),
	}
	flags.bind(command.Flags())
	flags.logs.bind(command.Flags())
	command.Flags().BoolVar(&flags.apiOnly, "api-only", false, "serve the Kubernetes API alone: no operator, no reflector, no custom resources")
	command.Flags().DurationVar(&flags.renew, "renew-after", 300*24*time.Hour, "start anew after this `TIME`: certificates are made at each start")
	return command
}

func (f *serveFlags) run(ctx context.Context, cmd *cobra.Command, dataDir string) error {
	begin := time.Now()
	log, err := f.logs.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	paths, err := resolve(dataDir)
	if err != nil {
		return err
	}
	dir, err := datadir.Open(paths.Root(), program())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go endAfter(ctx, begin.Add(f.renew), cancel)
	options := instance.Options{Dir: dir, Port: f.port}
	if !f.apiOnly {
		err = f.addOperator(ctx, &options, log)
	}
	if err == nil {
		err = instance.Run(ctx, options, func(r instance.Ready) {
			fmt.Fprintf(cmd.OutOrStdout(), "ready: %s after %.1f s, kubeconfig %s\n", r.Server, time.Since(begin).Seconds(), r.Kubeconfig)
		})
	}
	if err == nil && errors.Is(context.Cause(ctx), errRenew) {
		err = errRenew
	}
	return errors.Join(err, dir.Close())
}

// addOperator adds what makes Proxies of the API's objects.
func (f *serveFlags) addOperator(ctx context.Context, o *instance.Options, log *slog.Logger) error {
	file, err := f.loadProviders(o.Dir.Paths)
	if err != nil {
		return err
	}
	path := f.providersFile(o.Dir.Paths)
	reflect, err := f.listenReflector(ctx)
	if err != nil {
		return err
	}
	o.Prepare = func(ctx context.Context, api *rest.Config) error { return crds.Apply(ctx, api, crd.Files) }
	o.Work = func(ctx context.Context, api *rest.Config) error {
		group, ctx := errgroup.WithContext(ctx)
		if reflect != nil {
			requests := slog.New(slog.DiscardHandler)
			if log.Enabled(ctx, slog.LevelDebug) {
				requests = log.With("part", "reflector")
			}
			group.Go(func() error { return reflector.Serve(ctx, reflect, requests) })
		}
		operator := cli.Operator{
			REST: api, File: file, Path: path, Metrics: f.metrics, ConsoleSocket: cli.DefaultConsoleSocket(), Log: log,
		}
		group.Go(func() error { return operator.Run(ctx) })
		return group.Wait()
	}
	return nil
}

func (f *serveFlags) listenReflector(ctx context.Context) (net.Listener, error) {
	if f.reflector == noReflector {
		return nil, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.reflector)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the reflector: %w (choose another --reflector and name it in the providers file, or --reflector none)", err)
	}
	return listener, nil
}

// endAfter ends a server when its time has come by the wall clock, which goes on while a machine sleeps.
func endAfter(ctx context.Context, end time.Time, cancel context.CancelCauseFunc) {
	end = end.Round(0)
	for {
		left := time.Until(end)
		if left <= 0 {
			cancel(errRenew)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, time.Hour)):
		}
	}
}
