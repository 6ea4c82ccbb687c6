// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// With one API server a new custom resource is served at once; with more, each waits 5 s for the others.
const apiServers = 1

// configs belong to the three servers of the chain, each of which hands on what it does not know.
type configs struct {
	extensions apiextensionsapiserver.CompletedConfig
	native     apiserver.CompletedConfig
	aggregator aggregatorapiserver.CompletedConfig
}

func buildChain(opts options.CompletedOptions) (*aggregatorapiserver.APIAggregator, error) {
	c, err := newConfigs(opts)
	if err != nil {
		return nil, err
	}
	notFound := notfoundhandler.New(c.native.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensions, err := c.extensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	native, err := newNative(c.native, extensions.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("native resources: %w", err)
	}
	crds := extensions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	aggregator, err := apiserver.CreateAggregatorServer(c.aggregator, native.GenericAPIServer, crds, true,
		apiserver.DefaultGenericAPIServicePriorities())
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	return aggregator, nil
}

func newConfigs(opts options.CompletedOptions) (configs, error) {
	generic, informers, storage, err := apiserver.BuildGenericConfig(opts,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		servedResources(), generatedopenapi.GetOpenAPIDefinitions, nil)
	if err != nil {
		return configs{}, err
	}
	services := webhook.NewDefaultServiceResolver()
	native, plugins, err := apiserver.CreateConfig(opts, generic, informers, nil, storage, services, nil)
	if err != nil {
		return configs{}, fmt.Errorf("native resources: %w", err)
	}
	webhookAuth := webhook.NewDefaultAuthenticationInfoResolverWrapper(native.ProxyTransport,
		native.Generic.EgressSelector, native.Generic.LoopbackClientConfig, native.Generic.TracerProvider)
	extensions, err := apiserver.CreateAPIExtensionsConfig(*native.Generic, native.VersionedInformers, plugins, opts,
		apiServers, services, webhookAuth)
	if err != nil {
		return configs{}, fmt.Errorf("custom resources: %w", err)
	}
	aggregator, err := apiserver.CreateAggregatorConfig(*native.Generic, opts, native.VersionedInformers, services,
		native.ProxyTransport, native.PeerProxy, plugins)
	if err != nil {
		return configs{}, fmt.Errorf("aggregator: %w", err)
	}
	aggregator.ExtraConfig.DisableRemoteAvailableConditionController = true
	return configs{extensions: extensions.Complete(), native: native.Complete(), aggregator: aggregator.Complete()}, nil
}

func newNative(config apiserver.CompletedConfig, next genericapiserver.DelegationTarget) (*apiserver.Server, error) {
	native, err := config.New("egress-standalone", next)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	providers, err := config.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, err
	}
	return native, native.InstallAPIs(providers...)
}

// servedResources are the stable groups of a generic control plane.
func servedResources() *serverstorage.ResourceConfig {
	served := serverstorage.NewResourceConfig()
	served.EnableVersions(
		admissionregistrationv1.SchemeGroupVersion,
		authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion,
		certificatesv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion,
		corev1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion,
		flowcontrolv1.SchemeGroupVersion,
		rbacv1.SchemeGroupVersion,
	)
	return served
}
