// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
)

// schema is the JSON Schema of a part of the file, as far as the types say. It is for editors: what it refuses the decoder refuses, and the decoder refuses more.
type schema map[string]any

// always are the fields without which nothing is read.
var always = map[string][]string{"File": {"version"}, "Entry": {"name", "type"}, "Host": {"name"}}

func (r *reference) writeSchema(path string, types []string) error {
	root := r.object("File", "")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "The providers file of the Egress Proxies Operator"
	root["properties"].(schema)["version"].(schema)["const"] = 1
	entry := root["properties"].(schema)["entries"].(schema)
	var choices []any
	for _, t := range types {
		is := schema{"properties": schema{"type": schema{"const": t}}, "required": []string{"type"}}
		choices = append(choices, schema{"if": is, "then": r.object("Entry", t)})
	}
	entry["items"] = schema{
		"type": "object", "required": always["Entry"], "properties": schema{"type": schema{"enum": types}}, "allOf": choices,
	}
	content, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}

// object is the schema of a struct, in an entry of a type where it is in one.
func (r *reference) object(name, entryType string) schema {
	properties := schema{}
	for _, f := range r.structs[name] {
		if f.types == "" || entryType == "" || slices.Contains(strings.Split(f.types, ","), entryType) {
			properties[f.key] = r.value(f, entryType, meaning(r.structs[name], f))
		}
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if required := always[name]; required != nil {
		s["required"] = required
	}
	return s
}

func (r *reference) value(f field, entryType, description string) schema {
	one := r.scalar(f.of, entryType)
	switch {
	case f.list:
		one = schema{"type": "array", "items": one}
	case f.keyed:
		one = schema{"type": "object", "additionalProperties": one}
	}
	one["description"] = strings.ReplaceAll(strings.ReplaceAll(description, `\|`, "|"), "`", "")
	return one
}

func (r *reference) scalar(of, entryType string) schema {
	switch of {
	case "string":
		return schema{"type": "string", "minLength": 1}
	case "bool":
		return schema{"type": "boolean"}
	case "int", "int64":
		return schema{"type": "integer", "minimum": 0}
	case "Duration":
		return schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	}
	if of == "Entry" {
		return schema{} // filled in by the caller, for each type
	}
	return r.object(of, entryType)
}
