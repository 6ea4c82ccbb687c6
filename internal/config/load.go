// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// MaxFileBytes is the largest providers file that is read.
const MaxFileBytes = 1 << 20

// Load reads the providers file at path. The error is Errors where the file could be read.
func Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("providers file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("providers file: %w", err)
	}
	file, d := parsed(data, path)
	if file == nil {
		return nil, d.result()
	}
	d.readGuestData(file)
	if err := d.result(); err != nil {
		return nil, err
	}
	return file, nil
}

// Parse reads a providers file from data, fills in defaults and validates it. path is what errors call the file, and its folder is
// what relative paths in it start from. The error is always Errors: every mistake at once, in the order of the lines. Parse opens
// no file: CheckFiles says whether those that the file names exist, and only Load has what VendorDataFile and UserDataFile hold.
func Parse(data []byte, path string) (*File, error) {
	file, d := parsed(data, path)
	return file, d.result()
}

// parsed is nil for a file that holds mistakes, which the document has then.
func parsed(data []byte, path string) (*File, *document) {
	d := newDocument(path)
	root := d.read(data)
	if root == nil {
		return nil, d
	}
	file := new(File)
	d.decode(root, reflect.ValueOf(file).Elem(), "")
	if d.budget < 0 {
		d.errs, d.more = nil, 0
		d.add(root, "", fmt.Sprintf("has more than %d values, with those that aliases repeat", maxValues))
		return nil, d
	}
	if v := file.Version; v != Version && d.has("version") && d.sound("version") {
		// Whatever else differs, differs because of the version.
		d.errs, d.more = nil, 0
		d.failf("version", "must be %d: this program reads no other version of the providers file", Version)
		return nil, d
	}
	d.applyDefaults(file)
	d.validate(file)
	if len(d.errs) > 0 {
		return nil, d
	}
	return file, d
}

// read parses the one YAML document in data; nil where that fails, which is then reported.
func (d *document) read(data []byte) *yaml.Node {
	if len(data) > MaxFileBytes {
		d.add(nil, "", fmt.Sprintf("is larger than %d bytes", MaxFileBytes))
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		d.add(nil, "", "is empty: it needs at least version and reflectors")
		return nil
	case err != nil:
		d.addSyntax(err)
		return nil
	}
	switch err := decoder.Decode(&next); {
	case err == nil:
		d.add(&next, "", "a second YAML document starts here: a providers file is one document")
		return nil
	case !errors.Is(err, io.EOF):
		d.addSyntax(err)
		return nil
	}
	return doc.Content[0]
}

var syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// addSyntax reports what the YAML parser says.
func (d *document) addSyntax(err error) {
	message, at := err.Error(), new(yaml.Node)
	if m := syntaxError.FindStringSubmatch(message); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		message = m[2]
	}
	d.add(at, "", "is not YAML: "+message)
}
