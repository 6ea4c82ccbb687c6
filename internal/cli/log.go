// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// LogFlags say how a command logs.
type LogFlags struct {
	format string
	level  slog.Level
}

// Bind adds the flags to a command's.
func (f *LogFlags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "auto", "`FORMAT` of the log: text, json, or auto (text on a terminal, json elsewhere)")
	flags.TextVar(&f.level, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn or error")
}

// Logger writes to w.
func (f *LogFlags) Logger(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: f.level}
	var handler slog.Handler
	switch {
	case f.format == "text", f.format == "auto" && IsTerminal(w):
		handler = slog.NewTextHandler(w, options)
	case f.format == "json", f.format == "auto":
		handler = slog.NewJSONHandler(w, options)
	default:
		return nil, usageError{fmt.Errorf("--log-format %q: use text, json or auto", f.format)}
	}
	return slog.New(handler), nil
}

// TakeKubernetesLogs has what the Kubernetes libraries log written to log. It is for the whole process: to be called before they are used. The first
// call counts, for they read their logger without a lock.
func TakeKubernetesLogs(log *slog.Logger) {
	takeKubernetesLogs.Do(func() {
		ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
		klog.SetSlogLogger(log)
	})
}

var takeKubernetesLogs sync.Once
