// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is one providers file on its way to a File: where each value stands, and what is wrong so far.
type document struct {
	file string
	// nodes are the values that the file has, by path.
	nodes map[string]*yaml.Node
	// broken are the paths whose value could not be decoded: nothing more is said of them.
	broken map[string]bool
	errs   Errors
	// more counts the mistakes beyond maxErrors.
	more int
	// budget is the number of values that may still be visited: aliases could multiply a small file.
	budget int
	// entryType is the type of the entry that is being decoded.
	entryType string
}

func newDocument(file string) *document {
	return &document{file: file, nodes: map[string]*yaml.Node{}, broken: map[string]bool{}, budget: maxValues}
}

// has says whether the file has a value at path, broken or not.
func (d *document) has(path string) bool {
	_, ok := d.nodes[path]
	return ok
}

// sound says that the value at path, and all that holds it, could be decoded.
func (d *document) sound(path string) bool {
	for p := path; ; p = parent(p) {
		if d.broken[p] {
			return false
		}
		if p == "" {
			return true
		}
	}
}

// failf reports a mistake in the value at path, unless that value is already known to be broken.
func (d *document) failf(path, format string, args ...any) {
	if !d.sound(path) {
		return
	}
	p := path
	for p != "" && !d.has(p) {
		p = parent(p)
	}
	d.add(d.nodes[p], path, fmt.Sprintf(format, args...))
}

// breakf reports a mistake that stands at node and leaves the value at path without a meaning.
func (d *document) breakf(node *yaml.Node, path, format string, args ...any) {
	d.broken[path] = true
	d.add(node, path, fmt.Sprintf(format, args...))
}

func (d *document) add(node *yaml.Node, path, message string) {
	if len(d.errs) >= maxErrors {
		d.more++
		return
	}
	e := Error{File: d.file, Path: path, Message: message}
	if node != nil {
		e.Line, e.Column = node.Line, node.Column
	}
	d.errs = append(d.errs, e)
}

// result is every mistake, or nil.
func (d *document) result() error {
	if len(d.errs) == 0 {
		return nil
	}
	d.errs.sort()
	if d.more > 0 {
		d.errs = append(d.errs, Error{File: d.file, Message: fmt.Sprintf("%d more mistakes are not shown", d.more)})
	}
	return d.errs
}

// text is the value at path as the file writes it, or "".
func (d *document) text(path string) string {
	if n := d.nodes[path]; n != nil {
		return n.Value
	}
	return ""
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// child is the path of a mapping's value.
func child(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + shown(key) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// item is the path of a list's value.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// parent is the path without its last step.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
