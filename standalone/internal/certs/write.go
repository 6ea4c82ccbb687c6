// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"os"
)

// writeFile replaces the file whole, with mode 0600: a crash leaves the old one or the new one.
func writeFile(file string, content []byte) error {
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}
