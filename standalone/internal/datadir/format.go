// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Format of the data that this program keeps. It rises when an older program could not read them any more.
const Format = 1

// stamp is the content of the file "version".
type stamp struct {
	Format int `json:"format"`
	// Program that last wrote the data.
	Program string `json:"program"`
}

// checkFormat refuses data of a newer format, and notes that this program writes here from now on.
func (p Paths) checkFormat(program string) error {
	if _, err := os.Stat(p.Restoring()); err == nil {
		return fmt.Errorf("data directory %s: a restore was cut short: empty the directory and restore again", p.root)
	}
	mine := stamp{Format: Format, Program: program}
	content, err := os.ReadFile(p.Version())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.writeStamp(mine)
	case err != nil:
		return p.explain(err)
	}
	var found stamp
	if err := json.Unmarshal(content, &found); err != nil || found.Format < 1 {
		return fmt.Errorf("data directory %s: the file version is damaged (%q): restore a backup into another directory", p.root, strings.TrimSpace(string(content)))
	}
	if err := CheckFormat(found.Format, found.Program, program); err != nil {
		return fmt.Errorf("data directory %s %w, or choose another --data-dir", p.root, err)
	}
	if found == mine {
		return nil
	}
	return p.writeStamp(mine)
}

// Program is the one that wrote the data last, or empty where that is not known.
func (p Paths) Program() string {
	content, err := os.ReadFile(p.Version())
	var found stamp
	if err != nil || json.Unmarshal(content, &found) != nil {
		return ""
	}
	return found.Program
}

// CheckFormat refuses a format that this program does not know, and says which program does.
func CheckFormat(format int, writtenBy, program string) error {
	if format <= Format {
		return nil
	}
	return fmt.Errorf("has format %d, written by %s; this is %s, which knows formats up to %d: use the other program", format, writtenBy, program, Format)
}

func (p Paths) writeStamp(s stamp) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := WriteFile(p.Version(), append(content, '\n')); err != nil {
		return p.explain(err)
	}
	return nil
}

// WriteFile replaces a file whole, with mode 0600: a crash leaves the old one or the new one.
func WriteFile(file string, content []byte) error {
	next := file + ".new"
	// A file of the same name that somebody else may read would keep its mode.
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// checkEmpty accepts what commands leave in a directory that holds no data: their locks, and a restore that was cut short.
func (p Paths) checkEmpty() error {
	entries, err := os.ReadDir(p.root)
	if err != nil {
		return p.explain(err)
	}
	for _, entry := range entries {
		if path := filepath.Join(p.root, entry.Name()); !p.IsLock(path) && path != p.Restoring() {
			return fmt.Errorf("data directory %s is not empty (it has %s): restore into an empty or missing directory", p.root, entry.Name())
		}
	}
	return nil
}
