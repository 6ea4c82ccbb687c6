// SPDX-License-Identifier: Apache-2.0

// Package providersfile is the providers file of somebody who has none yet.
package providersfile

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
)

// Content is the file that Ensure writes.
//
//go:embed providers.yaml
var Content []byte

// Ensure writes the file, with mode 0600, where there is none.
func Ensure(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = datadir.WriteFile(path, Content)
	}
	if err != nil {
		return fmt.Errorf("the providers file: %w", err)
	}
	return nil
}

// Unchanged says whether the file is still as it was written.
func Unchanged(path string) bool {
	content, err := os.ReadFile(path)
	return err == nil && string(content) == string(Content)
}
