// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API group egressproxies.dev, version v1alpha1: exit IPs as Kubernetes resources.
//
// +kubebuilder:object:generate=true
// +groupName=egressproxies.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "egressproxies.dev", Version: "v1alpha1"}

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Proxy{}, &ProxyList{}, &ProviderHealth{}, &ProviderHealthList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
