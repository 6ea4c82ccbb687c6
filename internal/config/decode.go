// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxValues bounds the values of a file, with those that aliases repeat.
const maxValues = 50_000

// decode fills v from node and reports what does not fit. It follows the types of this package, which are not recursive, so its
// depth is bounded whatever the node holds.
func (d *document) decode(node *yaml.Node, v reflect.Value, path string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	d.nodes[path] = node
	if d.budget--; d.budget < 0 {
		return
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		d.breakf(node, path, "has no value: give it one, or leave the key out")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.decodeText(node, text, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(node, v, path)
	case reflect.Map:
		d.decodeMap(node, v, path)
	case reflect.Slice:
		d.decodeList(node, v, path)
	case reflect.String:
		d.decodeString(node, v, path)
	case reflect.Bool:
		d.decodeBool(node, v, path)
	case reflect.Int, reflect.Int64:
		d.decodeInt(node, v, path)
	default:
		panic("config: the providers file's types have a kind that decode does not know: " + v.Kind().String())
	}
}

// is reports a node that is not of the kind and tag wanted.
func (d *document) is(node *yaml.Node, path string, kind yaml.Kind, tag, wanted string) bool {
	if node.Kind == kind && node.ShortTag() == tag {
		return true
	}
	d.breakf(node, path, "must be %s, not %s", wanted, kindName(node))
	return false
}

func (d *document) decodeStruct(node *yaml.Node, v reflect.Value, path string) {
	if !d.is(node, path, yaml.MappingNode, "!!map", "a mapping (key: value)") {
		return
	}
	if v.Type() == reflect.TypeFor[Entry]() {
		d.entryType = typeOfEntry(node)
	}
	var meant []string
	d.eachPair(node, path, func(key, value *yaml.Node, at string) {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("yaml") == key.Value {
				d.decode(value, v.Field(i), at)
				return
			}
		}
		known := keysOf(v.Type(), d.entryType)
		if near := suggestion(key.Value, known); near != "" {
			meant = append(meant, child(path, near))
		}
		d.breakf(key, at, "unknown key%s (known here: %s)", didYouMean(key.Value, known), strings.Join(known, ", "))
	})
	for _, at := range meant {
		// What was meant is missing only because of the typo: one mistake, one error.
		if !d.has(at) {
			d.broken[at] = true
		}
	}
}

func (d *document) decodeMap(node *yaml.Node, v reflect.Value, path string) {
	if !d.is(node, path, yaml.MappingNode, "!!map", "a mapping (key: value)") {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.eachPair(node, path, func(key, value *yaml.Node, at string) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, element, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	})
}

// eachPair visits the pairs of a mapping whose keys are text and new.
func (d *document) eachPair(node *yaml.Node, path string, visit func(key, value *yaml.Node, at string)) {
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content) && d.budget >= 0; i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			d.add(key, path, "has a key that is not text: "+keyHint(key))
			continue
		}
		at := child(path, key.Value)
		if line, seen := first[key.Value]; seen {
			d.add(key, at, "is there twice; the first is in line "+strconv.Itoa(line))
			continue
		}
		first[key.Value] = key.Line
		visit(key, value, at)
	}
}

func keyHint(key *yaml.Node) string {
	if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
		return "merge keys (<<) are not supported, write the keys out"
	}
	return "it is " + kindName(key) + "; put it in quotes"
}

func (d *document) decodeList(node *yaml.Node, v reflect.Value, path string) {
	if !d.is(node, path, yaml.SequenceNode, "!!seq", "a list") {
		return
	}
	// Grown one by one: aliases could promise far more items than the budget lets in.
	for i := 0; i < len(node.Content) && d.budget >= 0; i++ {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decode(node.Content[i], element, item(path, i))
		v.Set(reflect.Append(v, element))
	}
}

func (d *document) decodeString(node *yaml.Node, v reflect.Value, path string) {
	wanted := "text"
	if node.Kind == yaml.ScalarNode {
		wanted = "text (put it in quotes)"
	}
	if !d.is(node, path, yaml.ScalarNode, "!!str", wanted) {
		return
	}
	if node.Value == "" {
		d.breakf(node, path, "is empty: give it a value, or leave the key out")
		return
	}
	v.SetString(node.Value)
}

func (d *document) decodeText(node *yaml.Node, text encoding.TextUnmarshaler, path string) {
	if node.Kind != yaml.ScalarNode {
		d.breakf(node, path, "must be one value, not %s", kindName(node))
		return
	}
	if err := text.UnmarshalText([]byte(node.Value)); err != nil {
		d.breakf(node, path, "%s", err)
	}
}

func (d *document) decodeBool(node *yaml.Node, v reflect.Value, path string) {
	const wanted = "true or false, without quotes"
	if !d.is(node, path, yaml.ScalarNode, "!!bool", wanted) {
		return
	}
	if node.Value != "true" && node.Value != "false" {
		d.breakf(node, path, "must be %s", wanted)
		return
	}
	v.SetBool(node.Value == "true")
}

// decodeInt reads plain decimal digits only: in YAML 010 is 8, and 1_000 is 1000 to some readers.
func (d *document) decodeInt(node *yaml.Node, v reflect.Value, path string) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	if node.Kind != yaml.ScalarNode || node.Style&quoted != 0 || !decimal(node.Value) {
		d.breakf(node, path, "must be a whole number: plain digits, without quotes")
		return
	}
	// Too large a number saturates here, so that its range check refuses it and names the bounds.
	n, _ := strconv.ParseInt(node.Value, 10, 64)
	if v.OverflowInt(n) {
		n = min(max(n, math.MinInt32), math.MaxInt32)
	}
	v.SetInt(n)
}

func decimal(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// kindName says what a node is, without its value.
func kindName(node *yaml.Node) string {
	switch tag := node.ShortTag(); tag {
	case "!!map":
		return "a mapping"
	case "!!seq":
		return "a list"
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a date"
	default:
		return "a value with the tag " + shown(tag)
	}
}

// typeOfEntry is the type of provider that an entry's node names, or means.
func typeOfEntry(entry *yaml.Node) string {
	for i := 0; i+1 < len(entry.Content); i += 2 {
		if entry.Content[i].Value == "type" {
			return meantType(entry.Content[i+1].Value)
		}
	}
	return ""
}

// meantType is the type of provider that a word is, or is near to; empty where there is none.
func meantType(word string) string {
	if slices.Contains(Types(), word) {
		return word
	}
	return suggestion(word, Types())
}

// keysOf are the keys of a struct's fields, in their order: those of one type of entry, or all where it is empty.
func keysOf(t reflect.Type, entryType string) []string {
	var keys []string
	for i := range t.NumField() {
		if tag := t.Field(i).Tag; entryType == "" || hasType(tag, entryType) {
			keys = append(keys, tag.Get("yaml"))
		}
	}
	return keys
}

// hasType says whether a field belongs to entries of a type.
func hasType(tag reflect.StructTag, entryType string) bool {
	types := tag.Get("types")
	return types == "" || slices.Contains(strings.Split(types, ","), entryType)
}
