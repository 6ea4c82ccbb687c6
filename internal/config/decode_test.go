// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func TestStrictDecoding(t *testing.T) {
	const host = "        bridge: br0\n"
	tests := []struct {
		name, old, replacement string
		path, want             string
	}{
		{"unknown key at the top", "version: 1\n", "version: 1\nprobes: {}\n", "probes", `unknown key; did you mean "probe"? (known here: version, reflectors, probe, imageSpoolGiB, entries)`},
		{"unknown key, nothing near", "version: 1\n", "version: 1\nzzz: {}\n", "zzz", "unknown key (known here:"},
		{"key in other case", host, host + "        Pool: x\n", "entries[0].hosts[0].Pool", `did you mean "pool"?`},
		{"duplicate key", host, host + "        name: b\n", "entries[0].hosts[0].name", "is there twice; the first is in line 8"},
		{"duplicate image", "    images:\n", "    images:\n      debian: {url: https://example.org/}\n", "entries[0].images.debian", "twice; the first is in line 15"},
		{"list for a mapping", host, host + "    defaults: [1]\n", "entries[0].defaults", "must be a mapping (key: value), not a list"},
		{"mapping for a list", "  - url: http://192.0.2.10:8080/", "  url: http://192.0.2.10:8080/", "reflectors", "must be a list, not a mapping"},
		{"text for a list", host, host + "    allowedNamespaces: one\n", "entries[0].allowedNamespaces", "must be a list, not text"},
		{"number for text", "- name: a\n", "- name: 12\n", "entries[0].hosts[0].name", "must be text (put it in quotes), not a number"},
		{"boolean for text", "- name: a\n", "- name: true\n", "entries[0].hosts[0].name", "must be text (put it in quotes), not a boolean"},
		{"date for text", "- name: a\n", "- name: 2024-01-01\n", "entries[0].hosts[0].name", "must be text (put it in quotes), not a date"},
		{"tag", "- name: a\n", "- name: !x a\n", "entries[0].hosts[0].name", `not a value with the tag "!x"`},
		{"set", "      debian:\n        url: https://example.org/debian.qcow2\n", "      debian: !!set {url}\n", "entries[0].images.debian", "must be a mapping"},
		{"yes for a boolean", host, host + "        schedulable: yes\n", "entries[0].hosts[0].schedulable", "must be true or false, without quotes, not text"},
		{"True for a boolean", host, host + "        schedulable: True\n", "entries[0].hosts[0].schedulable", "must be true or false"},
		{"quoted boolean", host, host + "        schedulable: 'true'\n", "entries[0].hosts[0].schedulable", "must be true or false"},
		{"text for a number", "version: 1\n", "version: one\n", "version", "must be a whole number"},
		{"quoted number", "version: 1\n", "version: '1'\n", "version", "must be a whole number"},
		{"fraction", "version: 1\n", "version: 1.5\n", "version", "must be a whole number"},
		{"octal", "version: 1\n", "version: 01\n", "version", "must be a whole number"},
		{"hexadecimal", "version: 1\n", "version: 0x1\n", "version", "must be a whole number"},
		{"null", host, host + "        pool:\n", "entries[0].hosts[0].pool", "has no value"},
		{"empty text", host, host + "        pool: ''\n", "entries[0].hosts[0].pool", "is empty"},
		{"duration without unit", "version: 1\n", "version: 1\nprobe: {interval: 30}\n", "probe.interval", "must be a duration with its unit, such as 30s"},
		{"list for a duration", "version: 1\n", "version: 1\nprobe: {interval: [30s]}\n", "probe.interval", "must be one value, not a list"},
		{"key that is a number", "    images:\n", "    images:\n      12: {url: https://example.org/}\n", "entries[0].images", "a key that is not text: it is a number; put it in quotes"},
		{"merge key", "    images:\n", "    images: &i\n      <<: *i\n", "entries[0].images", "merge keys (<<) are not supported"},
		{"other version", "version: 1\n", "version: 2\nnews: true\n", "version", "must be 1: this program reads no other version"},
		{"no version", "version: 1\n", "", "version", "is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(minimal, tt.old, tt.replacement, 1)
			if tt.name == "no version" || strings.Contains(text, tt.replacement) && text != minimal {
				refusedOnce(t, text, tt.path, tt.want)
			} else {
				t.Fatal("the test changes nothing")
			}
		})
	}
}

func TestNotOneDocument(t *testing.T) {
	tests := []struct {
		name, text string
		line       int
		want       string
	}{
		{"empty", "", 0, "is empty"},
		{"comment only", "# nothing\n", 0, "is empty"},
		{"two documents", minimal + "---\nversion: 1\n", 17, "a second YAML document"},
		{"second document broken", minimal + "---\n{\n", 18, "is not YAML"},
		{"not YAML", "version: 1\nentries: [\n", 2, "is not YAML"},
		{"a tab", "version: 1\nentries:\n\t- name: x\n", 3, "is not YAML"},
		{"not UTF-8", "version: \xff\n", 0, "is not YAML"},
		{"text", "hello", 1, "must be a mapping (key: value), not text"},
		{"unknown anchor", "version: *x\n", 0, "unknown anchor"},
		{"null", "null\n", 1, "has no value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			errs := refused(t, tt.text)
			if len(errs) != 1 || !strings.Contains(errs[0].Message, tt.want) || errs[0].Line != tt.line {
				t.Errorf("errors: %v\nwant %q in line %d", errs, tt.want, tt.line)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	text := with(t, "        url: https://example.org/debian.qcow2\n",
		"        url: &u https://example.org/debian.qcow2\n      other: {url: *u}\n    defaultImage: other\n")
	if got := parse(t, text).Entries[0].Images["other"].URL; got != "https://example.org/debian.qcow2" {
		t.Errorf("an alias gave %q", got)
	}

	cyclic := refused(t, "version: 1\nreflectors: &r [*r]\n")
	if !strings.Contains(cyclic.Error(), "reflectors[0]: must be a mapping") {
		t.Errorf("a cycle: %v", cyclic)
	}

	var bomb strings.Builder
	bomb.WriteString("version: 1\nentries: [&x {name: &e a, allowedNamespaces: [")
	bomb.WriteString(strings.Repeat("*e,", 40_000) + "]},")
	bomb.WriteString(strings.Repeat("*x,", 40_000) + "]\n")
	if errs := refused(t, bomb.String()); len(errs) != 1 || !strings.Contains(errs.Error(), "more than 50000 values") {
		t.Errorf("a file whose aliases make 1.6e9 values: %v", errs)
	}
}

func TestManyMistakesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(minimal)
	for i := range 1000 {
		fmt.Fprintf(&b, "unknown%d: 1\n", i)
	}
	errs := refused(t, b.String())
	if len(errs) != maxErrors+1 || errs[maxErrors].Message != "900 more mistakes are not shown" {
		t.Errorf("%d errors, the last: %v", len(errs), errs[len(errs)-1])
	}
}

func TestDuration(t *testing.T) {
	type holder struct {
		D Duration `json:"d" yaml:"d"`
	}
	in := holder{Duration(90 * time.Second)}
	var fromJSON, fromYAML holder
	j, err := json.Marshal(in)
	if err != nil || string(j) != `{"d":"1m30s"}` {
		t.Fatalf("JSON is %s, %v", j, err)
	}
	y, err := yaml.Marshal(in)
	if err != nil || string(y) != "d: 1m30s\n" {
		t.Fatalf("YAML is %s, %v", y, err)
	}
	if err := json.Unmarshal(j, &fromJSON); err != nil || fromJSON.D.D() != 90*time.Second {
		t.Errorf("from JSON: %v, %v", fromJSON, err)
	}
	if err := yaml.Unmarshal(y, &fromYAML); err != nil || fromYAML.D.D() != 90*time.Second {
		t.Errorf("from YAML: %v, %v", fromYAML, err)
	}
}

func TestSuggestion(t *testing.T) {
	known := []string{"name", "address", "privateKeyFile"}
	for word, want := range map[string]string{
		"adress": "address", "Name": "name", "nmae": "name", "privatekeyfile": "privateKeyFile", "keyFile": "", "": "",
		"xyz": "", strings.Repeat("a", 100): "",
	} {
		if got := suggestion(word, known); got != want {
			t.Errorf("suggestion(%q) = %q, want %q", word, got, want)
		}
	}
}
