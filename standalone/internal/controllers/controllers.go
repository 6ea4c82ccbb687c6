// SPDX-License-Identifier: Apache-2.0

// Package controllers runs those controllers of Kubernetes without which the API would not
// keep its word: dependents go with their owners, namespaces can be deleted, and the
// roles admin, edit and view hold the rules that are aggregated into them.
package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	// A new custom resource comes under garbage collection within this time.
	discoveryPeriod = 3 * time.Second
	initialSync     = 30 * time.Second
	namespaceResync = 5 * time.Minute
	workers         = 2
)

// namespacedResources asks for what can stand in a namespace. The namespace controller ends the process, with status 1 and without a word,
// where there is nothing at all; that is also the answer of an API that is being stopped, so then a word is put in its place.
func namespacedResources(ctx context.Context, api discovery.DiscoveryInterface) func() ([]*metav1.APIResourceList, error) {
	return func() ([]*metav1.APIResourceList, error) {
		resources, err := api.ServerPreferredNamespacedResources()
		if len(resources) == 0 && ctx.Err() != nil {
			return []*metav1.APIResourceList{{GroupVersion: "v1"}}, err
		}
		return resources, err
	}
}

// Run runs the controllers until the context ends. The API has to be ready.
func Run(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	sharedMetadata := metadatainformer.NewSharedInformerFactory(objects, 0)
	started := make(chan struct{})

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper,
		garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(shared, sharedMetadata), started)
	if err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	namespaces := namespace.NewNamespaceController(ctx, client, objects, namespacedResources(ctx, client.Discovery()),
		shared.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())

	shared.StartWithContext(ctx)
	sharedMetadata.Start(ctx.Done())
	close(started)
	defer shared.Shutdown()
	defer sharedMetadata.Shutdown()

	var running sync.WaitGroup
	for _, run := range []func(){
		func() { collector.Run(ctx, workers, initialSync) },
		func() { collector.Sync(ctx, client.Discovery(), discoveryPeriod) },
		func() { namespaces.Run(ctx, workers) },
		func() { roles.Run(ctx, workers) },
	} {
		running.Go(run)
	}
	running.Wait()
	return nil
}
