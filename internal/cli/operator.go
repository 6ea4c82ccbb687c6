// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

const (
	operatorName = "egress-proxies-operator"
	// shutdownTime is for background work to end in; a pod's grace period must exceed it.
	shutdownTime = 25 * time.Second
	// apiRate and apiBurst bound the requests to the API server, a second.
	apiRate  = 200
	apiBurst = 400
)

type operatorFlags struct {
	logs        logFlags
	providers   string
	agentDir    string
	namespace   string
	kubeconfig  string
	metrics     string
	leaderElect bool
	workers     int
	probes      int
}

func (f *operatorFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.providers, "providers", "", "the providers `FILE` (required)")
	flags.StringVar(&f.agentDir, "agent-dir", "", "`FOLDER` with egress-agent-linux-amd64 and -arm64 (default: that of this executable)")
	flags.StringVar(&f.namespace, "namespace", cluster.DefaultNamespace, "`NAMESPACE` of the operator's own objects; made when missing")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: $KUBECONFIG, the pod's own account, ~/.kube/config)")
	flags.StringVar(&f.metrics, "metrics-bind-address", "0", "`ADDRESS` that serves /metrics, or 0 for none")
	flags.BoolVar(&f.leaderElect, "leader-elect", false, "work only while holding a lease, so that several operators may run")
	flags.IntVar(&f.workers, "max-concurrent", 16, "how many Proxies are reconciled at once")
	flags.IntVar(&f.probes, "max-probes", probe.DefaultWorkers, "how many proxies are probed at once")
	f.logs.bind(flags)
}

func newOperator(s streams, decorators []Decorator) *cobra.Command {
	var flags operatorFlags
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Make Proxies what their specs say",
		Example: `  egress-proxies operator --providers providers.yaml
  egress-proxies operator --providers providers.yaml --kubeconfig ~/.kube/config --leader-elect --metrics-bind-address :8080`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := flags.logs.logger(s.err)
			if err != nil {
				return err
			}
			return flags.run(cmd.Context(), log, decorators)
		},
	}
	flags.bind(cmd.Flags())
	return cmd
}

// run is the operator until ctx ends.
func (f *operatorFlags) run(ctx context.Context, log *slog.Logger, decorators []Decorator) error {
	if f.providers == "" {
		return usageError{fmt.Errorf("--providers is required: the file that says where instances are made")}
	}
	if f.workers < 1 || f.probes < 1 {
		return usageError{fmt.Errorf("--max-concurrent and --max-probes must be at least 1")}
	}
	file, err := loadFile(f.providers)
	if err != nil {
		return err
	}
	agents, err := agentsIn(f.agentDir)
	if err != nil {
		return err
	}
	rest, err := f.rest()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	live, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("the Kubernetes API: %w", err)
	}
	identity, err := cluster.Load(ctx, live, f.namespace)
	if err != nil {
		return err
	}
	log.Info("operator starts", "version", version(), "cluster", identity.ID, "entries", file.EntryNames())
	mgr, err := f.manager(rest, scheme, log)
	if err != nil {
		return err
	}
	env := environment{cluster: identity.ID, file: file, agents: agents, log: log, decorators: decorators}
	if err := f.assemble(ctx, mgr, identity, file, func() (map[string]provider.Provider, error) { return makeProviders(env) }, log); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	log.Info("operator ends")
	return nil
}

// assemble puts the parts of the operator into the manager.
func (f *operatorFlags) assemble(
	ctx context.Context, mgr manager.Manager, identity cluster.Identity, file *config.File,
	construct func() (map[string]provider.Provider, error), log *slog.Logger,
) error {
	reconciler := &proxy.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Identity: identity, Guest: proxy.AgentGuest{},
		Events: mgr.GetEventRecorder(operatorName), Now: time.Now, Pace: proxy.DefaultPace,
	}
	providers := newRegistry(file, construct, reconciler.Wake, log)
	scheduler := probe.NewScheduler(new(probe.Prober).Probe, f.probes, func(uid string) { reconciler.Wake("", uid) })
	reconciler.Current, reconciler.Probes = providers.Current, scheduler
	for _, part := range []manager.RunnableFunc{providers.Start, scheduler.Start} {
		if err := mgr.Add(part); err != nil {
			return err
		}
	}
	return reconciler.SetupWithManager(ctx, mgr, f.workers)
}

func (f *operatorFlags) manager(config *rest.Config, scheme *runtime.Scheme, log *slog.Logger) (manager.Manager, error) {
	grace := shutdownTime
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: proxy.CacheOptions(), Logger: logr.FromSlogHandler(log.Handler()),
		Metrics:                       server.Options{BindAddress: f.metrics},
		LeaderElection:                f.leaderElect,
		LeaderElectionID:              operatorName,
		LeaderElectionNamespace:       f.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &grace,
		// A process may run the operator again after it ended.
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the operator: %w", err)
	}
	return mgr, nil
}

// rest is how the API server is reached.
func (f *operatorFlags) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API (--kubeconfig, $KUBECONFIG, the pod's own account, ~/.kube/config): %w", err)
	}
	config.QPS, config.Burst = apiRate, apiBurst
	config.UserAgent = operatorName + "/" + version()
	return config, nil
}
