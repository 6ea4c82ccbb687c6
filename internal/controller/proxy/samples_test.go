// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/test/kubeapi"
)

// sampleFiles are the samples that an API server takes, and the entries of those that are providers files.
func sampleFiles(t *testing.T) (objects, entries []string) {
	t.Helper()
	files, err := filepath.Glob("../../../config/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), "providers") {
			objects = append(objects, file)
			continue
		}
		f, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, f.EntryNames()...)
	}
	if len(objects) == 0 || len(entries) == 0 {
		t.Fatalf("samples are %q", files)
	}
	return objects, entries
}

func TestSamplesAreAccepted(t *testing.T) {
	api := kubeapi.Shared(t)
	c, err := client.New(api.Config, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	files, entries := sampleFiles(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			namespace := api.Namespace(t)
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
				entry, named, err := unstructured.NestedString(object.Object, "spec", "provider")
				if err != nil || named && !slices.Contains(entries, entry) {
					t.Errorf("%s names the entry %q, which no sample of a providers file has (%v)", object.GetName(), entry, err)
				}
			}
		})
	}
}
