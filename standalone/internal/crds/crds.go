// SPDX-License-Identifier: Apache-2.0

// Package crds puts the project's custom resources into the API.
package crds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	typed "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	fieldManager = "egress-standalone"
	poll         = 20 * time.Millisecond
	// A custom resource is established within a second on a machine that is not overloaded.
	establishTimeout = time.Minute
)

// Apply makes the custom resources what the files say, and returns once they are served.
func Apply(ctx context.Context, config *rest.Config, files fs.FS) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("custom resources: %w", err)
	}
	names, err := apply(ctx, client.ApiextensionsV1().CustomResourceDefinitions(), files)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	for _, name := range names {
		if err := waitEstablished(ctx, client.ApiextensionsV1().CustomResourceDefinitions(), name); err != nil {
			return fmt.Errorf("custom resource %s is not served: %w", name, err)
		}
	}
	return nil
}

func apply(ctx context.Context, crds typed.CustomResourceDefinitionInterface, files fs.FS) ([]string, error) {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range paths {
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			return nil, fmt.Errorf("custom resource in %s: %w", path, err)
		}
		// It is sent as it is written: a field that the file leaves out is not ours.
		body, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil, fmt.Errorf("custom resource in %s: %w", path, err)
		}
		force := true
		options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
		if _, err := crds.Patch(ctx, crd.Name, types.ApplyPatchType, body, options); err != nil {
			return nil, fmt.Errorf("custom resource %s: %w", crd.Name, err)
		}
		names = append(names, crd.Name)
	}
	return names, nil
}

func waitEstablished(ctx context.Context, crds typed.CustomResourceDefinitionInterface, name string) error {
	state := "it has no conditions"
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established {
				state = c.Message
				return c.Status == apiextensionsv1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), errors.New(state))
	}
	return err
}
