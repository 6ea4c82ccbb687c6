// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

const decodeBuffer = 4096

// Samples are the Proxies of a manifest, in the namespace default.
func Samples(manifest []byte) ([]*v1alpha1.Proxy, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), decodeBuffer)
	var samples []*v1alpha1.Proxy
	for {
		sample := &v1alpha1.Proxy{}
		if err := decoder.Decode(sample); errors.Is(err, io.EOF) {
			return samples, nil
		} else if err != nil {
			return nil, fmt.Errorf("sample Proxies: %w", err)
		}
		sample.Namespace = metav1.NamespaceDefault
		samples = append(samples, sample)
	}
}

// create makes those samples that are not there. One that is there may have been changed by its owner, and stays as it is.
func create(ctx context.Context, c client.Client, samples []*v1alpha1.Proxy) (made []string, err error) {
	for _, sample := range samples {
		err := createOne(ctx, c, sample.DeepCopy())
		switch {
		case err == nil:
			made = append(made, sample.Name)
		case !apierrors.IsAlreadyExists(err):
			return nil, fmt.Errorf("sample Proxy %s: %w", sample.Name, err)
		}
	}
	return made, nil
}

// kindsEvery is how often a server is asked that does not list the kind yet.
const kindsEvery = 100 * time.Millisecond

// createOne makes a Proxy. A server that has only just got to know the kind serves it a moment before it lists it.
func createOne(ctx context.Context, c client.Client, p *v1alpha1.Proxy) error {
	ticker := time.NewTicker(kindsEvery)
	defer ticker.Stop()
	for {
		err := c.Create(ctx, p)
		if !meta.IsNoMatchError(err) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}
