// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
)

type operatorFlags struct {
	logs        LogFlags
	providers   string
	agentDir    string
	imageSpool  string
	namespace   string
	api         apiFlags
	metrics     string
	checks      string
	profiles    string
	leaderElect bool
	console     string
	workers     int
	probes      int
	collector   string
	grace       time.Duration
}

// minGrace is longer than a Create takes, by far enough.
const minGrace = time.Minute

func (f *operatorFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.providers, "providers", "", "the providers `FILE` (required)")
	flags.StringVar(&f.agentDir, "agent-dir", "", "`FOLDER` with egress-agent-linux-amd64 and -arm64 (default: that of this executable)")
	flags.StringVar(&f.imageSpool, "image-spool", "", "`FOLDER` on a disk for images on their way to hosts (default: /var/tmp, where it can be written)")
	flags.StringVar(&f.namespace, "namespace", cluster.DefaultNamespace, "`NAMESPACE` of the operator's own objects; made when missing")
	f.api.bind(flags)
	flags.StringVar(&f.metrics, "metrics-bind-address", "0", "`ADDRESS` that serves /metrics, or 0 for none")
	flags.StringVar(&f.checks, "health-probe-bind-address", "0", "`ADDRESS` that serves /healthz and /readyz, or 0 for none")
	flags.StringVar(&f.profiles, "pprof-bind-address", "0", "`ADDRESS` that serves /debug/pprof, which shows memory: a loopback one, or 0 for none")
	flags.StringVar(&f.console, "console-socket", DefaultConsoleSocket(), "`PATH` where the command console finds the consoles of guests; none when empty")
	flags.BoolVar(&f.leaderElect, "leader-elect", false, "work only while holding a lease, so that several operators may run")
	flags.IntVar(&f.workers, "max-concurrent", defaultWorkers, "how many Proxies are reconciled at once")
	flags.IntVar(&f.probes, "max-probes", probe.DefaultWorkers, "how many proxies are probed at once")
	flags.StringVar(&f.collector, "collector", string(collector.On), "what becomes of instances and volumes that nothing needs any more: `MODE` on, dry-run or off")
	flags.DurationVar(&f.grace, "collector-grace", collector.DefaultGrace, "how long something has to look so before it is removed; at least 1m")
	f.logs.Bind(flags)
}

func newOperator(s streams, decorators []Decorator) *cobra.Command {
	var flags operatorFlags
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Make Proxies what their specs say",
		Example: `  egress-proxies operator --providers providers.yaml
  egress-proxies operator --providers providers.yaml --kubeconfig ~/.kube/config --leader-elect --metrics-bind-address :8080`,
		Args: UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			operator, err := flags.operator(s)
			if err != nil {
				return err
			}
			TakeKubernetesLogs(operator.Log)
			operator.Decorators = decorators
			return operator.Run(cmd.Context())
		},
	}
	flags.bind(cmd.Flags())
	return cmd
}

// operator is what the flags say.
func (f *operatorFlags) operator(s streams) (Operator, error) {
	log, err := f.logs.Logger(s.err)
	if err != nil {
		return Operator{}, err
	}
	if f.providers == "" {
		return Operator{}, usageError{errors.New("--providers is required: the file that says where instances are made")}
	}
	if f.workers < 1 || f.probes < 1 {
		return Operator{}, usageError{errors.New("--max-concurrent and --max-probes must be at least 1")}
	}
	if !slices.Contains(collector.Modes(), collector.Mode(f.collector)) {
		return Operator{}, usageError{fmt.Errorf("--collector must be on, dry-run or off, not %q", f.collector)}
	}
	if f.grace < minGrace {
		return Operator{}, usageError{fmt.Errorf("--collector-grace must be at least %s, not %s", minGrace, f.grace)}
	}
	file, err := LoadProviders(f.providers)
	if err != nil {
		return Operator{}, err
	}
	config, err := f.api.rest()
	if err != nil {
		return Operator{}, err
	}
	return Operator{
		REST: config, File: file, Path: f.providers, AgentDir: f.agentDir, ImageSpool: f.imageSpool, Namespace: f.namespace, Metrics: f.metrics,
		Checks: f.checks, Profiles: f.profiles,
		ConsoleSocket: f.console,
		LeaderElect:   f.leaderElect, Workers: f.workers, Probes: f.probes, Log: log,
		Collector: collector.Mode(f.collector), CollectorGrace: f.grace,
	}, nil
}
