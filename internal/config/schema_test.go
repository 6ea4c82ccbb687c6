// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// samples are the providers files that the project has, as they are decoded by somebody who knows nothing of them.
func samples(t *testing.T) map[string]any {
	t.Helper()
	paths, err := filepath.Glob("../../config/samples/providers*.yaml")
	if err != nil || len(paths) < len(Types()) {
		t.Fatalf("%q, %v", paths, err)
	}
	all := map[string]any{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var sample any
		if err := yaml.Unmarshal(content, &sample); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = sample
	}
	return all
}

// mutants are all documents with one thing changed: a key that is not known, a value of another type, a key that is left out.
func mutants(value any, put func(any), found func(what string)) {
	at := func(what string, other any) {
		put(other)
		found(what)
		put(value)
	}
	switch v := value.(type) {
	case map[string]any:
		grown := maps.Clone(v)
		grown["nonesuch"] = 1
		at("an unknown key", grown)
		at("text for an object", "text")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			less := maps.Clone(v)
			delete(less, key)
			at("without "+key, less)
			mutants(v[key], func(other any) {
				changed := maps.Clone(v)
				changed[key] = other
				put(changed)
			}, func(what string) { found(key + ": " + what) })
		}
		put(value)
	case []any:
		at("text for a list", "text")
		for i := range v {
			mutants(v[i], func(other any) {
				changed := slices.Clone(v)
				changed[i] = other
				put(changed)
			}, func(what string) { found(fmt.Sprintf("%d: %s", i, what)) })
		}
		put(value)
	default:
		at("a list for "+fmt.Sprint(v), []any{v})
		at("nothing for "+fmt.Sprint(v), nil)
		at("an empty text for "+fmt.Sprint(v), "")
	}
}

func TestTheSchemaIsTrueOfTheDecoder(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("providers.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	accepted, refused := 0, 0
	for name, sample := range samples(t) {
		if err := schema.Validate(sample); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		document := sample
		mutants(sample, func(other any) { document = other }, func(what string) {
			content, err := yaml.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			_, decoderSays := Parse(content, "providers.yaml")
			schemaSays := schema.Validate(document)
			switch {
			case schemaSays == nil && decoderSays == nil:
				accepted++
			case schemaSays != nil && decoderSays != nil:
				refused++
			case schemaSays == nil && strings.HasSuffix(what, "an unknown key"):
				t.Errorf("%s: %s: the schema takes it, and the decoder says: %v", name, what, decoderSays)
			case schemaSays != nil:
				t.Errorf("%s: %s: the decoder takes it, and the schema says: %v", name, what, schemaSays)
			}
		})
	}
	if accepted < 10 || refused < 100 {
		t.Errorf("both took %d documents, and both refused %d", accepted, refused)
	}
}
