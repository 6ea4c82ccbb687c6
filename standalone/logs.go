// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
)

// logFlags say how a server logs.
type logFlags struct {
	cli.LogFlags
	verbosity int
}

func (f *logFlags) bind(flags *pflag.FlagSet) {
	f.Bind(flags)
	flags.IntVarP(&f.verbosity, "verbosity", "v", 0, "1 and more log the work of the Kubernetes API too")
}

// logger is the operator's. The API keeps quiet, for what it logs in normal work looks like trouble to people who do not know it.
func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	log, err := f.Logger(w)
	if err != nil {
		return nil, err
	}
	cli.TakeKubernetesLogs(log)
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	if f.verbosity > 0 {
		return log, flags.Set("v", strconv.Itoa(f.verbosity))
	}
	klog.ClearLogger()
	klog.SetOutput(io.Discard)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return nil, err
		}
	}
	return log, nil
}
