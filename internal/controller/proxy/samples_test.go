// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

func TestSamplesAreAccepted(t *testing.T) {
	api := kubeapi.Shared(t)
	namespace := api.Namespace(t)
	c, err := client.New(api.Config, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../config/samples/proxy-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
			for {
				var object unstructured.Unstructured
				if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
				object.SetNamespace(namespace)
				if err := c.Create(t.Context(), &object, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
