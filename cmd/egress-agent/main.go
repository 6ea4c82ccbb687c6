// SPDX-License-Identifier: Apache-2.0

// Command egress-agent is the proxy in a guest: HTTP CONNECT, plain HTTP and
// SOCKS5 on one port, always with credentials, and the control channel over
// which the operator changes them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
)

// version is set by the linker: -X main.version=v1.2.3.
var version string

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `egress-agent: HTTP and SOCKS5 proxy for one exit.

Usage:
  egress-agent --config FILE           serve until SIGTERM or SIGINT
  egress-agent --config FILE --check   say whether FILE can be used, and end
  egress-agent --version               print the version, and end

Exit codes: 0 ended as asked; 1 could not serve; 2 wrong flags or configuration.
The memory limit is the runtime's: set GOMEMLIMIT, for example to 128MiB.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("egress-agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		flags.PrintDefaults()
	}
	path := flags.String("config", "", "configuration `FILE` (JSON)")
	check := flags.Bool("check", false, "check the configuration and end")
	showVersion := flags.Bool("version", false, "print the version and end")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	if *showVersion {
		_, _ = fmt.Fprintln(stdout, "egress-agent", agentVersion())
		return exitOK
	}
	if *path == "" || flags.NArg() > 0 {
		flags.Usage()
		return exitUsage
	}
	config, err := agentapi.ReadConfig(*path)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "egress-agent:", err)
		return exitUsage
	}
	if *check {
		_, _ = fmt.Fprintf(stdout, "%s: ok, port %d, %d credentials\n", *path, config.ListenPort, len(config.Credentials))
		return exitOK
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	if err := serve(ctx, *path, config, logger); err != nil {
		logger.Error("the agent ends", "error", err)
		return exitFailed
	}
	return exitOK
}

// agentVersion is the linker's version, or the module's.
func agentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
