// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/gc"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/certs"
)

const (
	// Tokens name their issuer; nobody resolves it.
	serviceAccountIssuer = "https://egress-standalone.local"
	// How long a stop waits for watches to end by themselves.
	watchGrace = 2 * time.Second
)

// Options are what a control plane needs from outside.
type Options struct {
	EtcdEndpoint string
	// Listener is on a loopback address; the control plane closes it.
	Listener *net.TCPListener
	Certs    *certs.Bundle
}

func completeOptions(ctx context.Context, o Options) (options.CompletedOptions, error) {
	// Both are about several API servers behind one address; each costs writes every few seconds.
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(genericfeatures.APIServerIdentity):                   false,
		string(genericfeatures.UnknownVersionInteroperabilityProxy): false,
	}); err != nil {
		return options.CompletedOptions{}, fmt.Errorf("feature gates: %w", err)
	}
	s := options.NewOptions()
	s.Etcd.StorageConfig.Transport.ServerList = []string{o.EtcdEndpoint}

	address, ok := o.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return options.CompletedOptions{}, fmt.Errorf("listener on %s is not TCP", o.Listener.Addr())
	}
	s.SecureServing.Listener = o.Listener
	s.SecureServing.BindAddress = address.IP
	s.SecureServing.BindPort = address.Port
	s.SecureServing.ServerCert.CertKey.CertFile = o.Certs.ServingFile
	s.SecureServing.ServerCert.CertKey.KeyFile = o.Certs.ServingFile
	s.GenericServerRunOptions.AdvertiseAddress = address.IP
	s.GenericServerRunOptions.ShutdownSendRetryAfter = true
	s.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchGrace

	s.Features.EnableProfiling = false
	// Fair queues serve many tenants; here the plain limit on requests in flight is enough.
	s.Features.EnablePriorityAndFairness = false

	s.Authentication.Anonymous.Allow = false
	s.Authentication.ClientCert.ClientCA = o.Certs.CAFile
	s.Authentication.ServiceAccounts.Issuers = []string{serviceAccountIssuer}
	s.Authentication.ServiceAccounts.KeyFiles = []string{o.Certs.ServiceAccountKeyFile}
	s.Authentication.ServiceAccounts.OptionalTokenGetter = newTokenGetter
	s.ServiceAccountSigningKeyFile = o.Certs.ServiceAccountKeyFile
	s.Authorization.Modes = []string{modes.ModeRBAC}
	s.Admission.GenericAdmission.DefaultOffPlugins = sets.New(kubeoptions.AllOrderedPlugins...).Difference(admissionPlugins())

	completed, err := s.Complete(ctx, nil, nil)
	if err != nil {
		return options.CompletedOptions{}, fmt.Errorf("options: %w", err)
	}
	if err := utilerrors.NewAggregate(completed.Validate()); err != nil {
		return options.CompletedOptions{}, fmt.Errorf("options: %w", err)
	}
	return completed, nil
}

// admissionPlugins are those that concern what a control plane without pods serves.
func admissionPlugins() sets.Set[string] {
	return sets.New(
		lifecycle.PluginName,
		serviceaccount.PluginName,
		gc.PluginName,
		mutatingadmissionpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingadmissionpolicy.PluginName,
		validatingwebhook.PluginName,
		resourcequota.PluginName,
	)
}
