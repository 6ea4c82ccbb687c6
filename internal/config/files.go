// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CheckFiles says whether each file that a loaded providers file names is there and can be read: keys, passphrases, known_hosts, what
// mirrors name, and images and checksums of file:// URLs. The error is Errors, without lines.
func CheckFiles(f *File) error {
	var errs Errors
	check := func(path, name string) {
		if err := checkFile(name); err != nil {
			errs = append(errs, Error{Path: path, Message: err.Error()})
		}
	}
	for i := range f.Entries {
		e, at := &f.Entries[i], item("entries", i)
		for _, file := range e.credentialsFiles(at) {
			check(file.key, *file.path)
		}
		for _, key := range e.ImageNames() {
			image := e.Images[key]
			for _, named := range [][2]string{{"url", image.URL}, {"checksums", image.Checksums}} {
				if u, err := parseURL(named[1], "file"); err == nil {
					check(child(at+".images", key)+"."+named[0], u.Path)
				}
			}
		}
		for j := range e.Mirrors {
			for _, file := range e.Mirrors[j].files() {
				if *file.path != "" {
					check(item(at+".mirrors", j)+"."+file.key, *file.path)
				}
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// credentialsFiles are those that the entry and its jump hosts name; their keys are whole paths.
func (e *Entry) credentialsFiles(at string) []credentialsFile {
	var all []credentialsFile
	add := func(path string, c *SSHCredentials) {
		for _, file := range c.files() {
			if *file.path != "" {
				file.key = path + ".credentials." + file.key
				all = append(all, file)
			}
		}
	}
	add(at, &e.Credentials)
	for i, h := range e.Hosts {
		for j := range h.Jump {
			add(item(item(at+".hosts", i)+".jump", j), &h.Jump[j].Credentials)
		}
	}
	return all
}

func checkFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", name)
	case err != nil:
		return fmt.Errorf("cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", name)
	case info.Size() == 0:
		return fmt.Errorf("%s is empty", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return f.Close()
}
