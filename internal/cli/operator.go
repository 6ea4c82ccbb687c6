// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/egress-proxies/egress-proxies-operator/internal/cluster"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/proxy"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/internal/registry"
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

// Operator is the operator, ready to run.
type Operator struct {
	// REST is how the API server is reached.
	REST *rest.Config
	// File is the providers file, as LoadProviders gives it, and Path where it is: changes of it take effect while the operator runs. With an empty
	// Path they do not.
	File *config.File
	Path string
	// AgentDir holds the agents' binaries; that of the executable when empty.
	AgentDir string
	// ImageSpool is a folder on a disk for images on their way to hosts; defaultImageSpool, where that can be used, when empty.
	ImageSpool string
	// Namespace of the operator's own objects; cluster.DefaultNamespace when empty.
	Namespace string
	// Metrics is the address that serves /metrics; none when it is "0".
	Metrics string
	// Checks is the address that serves /healthz and /readyz, and Profiles the one that serves /debug/pprof; none when it is "0" or empty.
	Checks, Profiles string
	// ConsoleSocket is where the consoles of guests are shown, in a folder of its own; they are not where it is empty.
	ConsoleSocket string
	// LeaderElect works only while it holds a lease.
	LeaderElect bool
	// Workers is how many Proxies are reconciled at once, Probes how many are probed; 0 is the default.
	Workers, Probes int
	// Collector says what the collector may do; collector.On when empty. CollectorGrace is how long something has to look as if nothing needed
	// it; collector.DefaultGrace when 0.
	Collector      collector.Mode
	CollectorGrace time.Duration
	Log            *slog.Logger
	// Decorators wrap the Backend of each host, in this order.
	Decorators []Decorator
}

// defaultWorkers is how many Proxies are reconciled at once.
const defaultWorkers = 16

// Run is the operator until ctx ends. The API server must know the operator's kinds.
func (o Operator) Run(ctx context.Context) error {
	o.Namespace = cmp.Or(o.Namespace, cluster.DefaultNamespace)
	o.Workers, o.Probes = cmp.Or(o.Workers, defaultWorkers), cmp.Or(o.Probes, probe.DefaultWorkers)
	agents, err := agentsIn(o.AgentDir)
	if err != nil {
		return err
	}
	o.REST = rest.CopyConfig(o.REST)
	o.REST.QPS, o.REST.Burst, o.REST.UserAgent = apiRate, apiBurst, operatorName+"/"+version()
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	live, err := client.New(o.REST, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("the Kubernetes API: %w", err)
	}
	identity, err := cluster.Load(ctx, live, o.Namespace)
	if err != nil {
		return err
	}
	o.Log.Info("operator starts", "version", version(), "cluster", identity.ID, "entries", o.File.EntryNames())
	mgr, err := o.manager(scheme)
	if err != nil {
		return err
	}
	depot, err := o.depot()
	if err != nil {
		return err
	}
	defer depot.Close() // after the providers, which the manager ends
	env := environment{cluster: identity.ID, agents: agents, depot: depot, places: libvirt.NewPlaces(nil), log: o.Log, decorators: o.Decorators}
	following, stop := context.WithCancel(ctx)
	files := o.files(following, mgr, env)
	defer files.wait()
	defer stop()
	if err := o.assemble(ctx, mgr, identity, files); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	o.Log.Info("operator ends")
	return nil
}

// assemble puts the parts of the operator into the manager.
func (o Operator) assemble(ctx context.Context, mgr manager.Manager, identity cluster.Identity, files files) error {
	reconciler := &proxy.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Identity: identity, Guest: proxy.AgentGuest{},
		Events: mgr.GetEventRecorder(operatorName), Now: time.Now, Pace: proxy.DefaultPace,
	}
	var providers *registry.Registry
	health := o.health(mgr, func() *registry.Registry { return providers })
	files.Wake = func(entry, uid string) {
		reconciler.Wake(entry, uid)
		health.Wake(entry, uid)
	}
	providers = registry.New(files.Options)
	observedStates().source.Store(&stateSource{mgr.GetClient(), providers})
	scheduler := probe.NewScheduler(new(probe.Prober).Probe, o.Probes, func(uid string) { reconciler.Wake("", uid) })
	reconciler.Current, reconciler.Probes = providers.Current, scheduler
	parts := []manager.RunnableFunc{providers.Start, scheduler.Start, o.collector(mgr, providers, reconciler.Wake).Start}
	if o.ConsoleSocket != "" {
		consoles := &consoleServer{socket: o.ConsoleSocket, proxies: mgr.GetClient(), current: providers.Current, log: o.Log}
		parts = append(parts, consoles.Start)
	}
	for _, part := range parts {
		if err := mgr.Add(part); err != nil {
			return err
		}
	}
	if err := addChecks(mgr, providers); err != nil {
		return err
	}
	if err := health.SetupWithManager(mgr); err != nil {
		return err
	}
	return reconciler.SetupWithManager(ctx, mgr, o.Workers)
}

func (o Operator) manager(scheme *runtime.Scheme) (manager.Manager, error) {
	grace := shutdownTime
	mgr, err := ctrl.NewManager(o.REST, ctrl.Options{
		Scheme: scheme, Cache: proxy.CacheOptions(), Logger: logr.FromSlogHandler(o.Log.Handler()),
		Metrics:                       server.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress:        cmp.Or(o.Checks, "0"),
		PprofBindAddress:              cmp.Or(o.Profiles, "0"),
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              operatorName,
		LeaderElectionNamespace:       o.Namespace,
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
