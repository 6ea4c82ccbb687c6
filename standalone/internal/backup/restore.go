// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/etcd"
)

// Restore makes a data directory of a backup; the directory must be empty or missing. What is in the file is checked before
// the first of it is put in place, and a restore that is cut short leaves a directory that no server starts on.
func Restore(ctx context.Context, file string, to datadir.Paths, program string) (err error) {
	if _, err := unpack(file, program, nil); err != nil {
		return fmt.Errorf("backup %s: %w", file, err)
	}
	release, err := to.LockCommand(ctx, func() {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	dir, err := datadir.OpenEmpty(to.Root())
	if err != nil {
		return err
	}
	return errors.Join(restore(file, program, dir), dir.Close())
}

func restore(file, program string, dir *datadir.Dir) error {
	work := dir.Restoring()
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(work, pkiPrefix), 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	files, err := unpack(file, program, func(name string) string { return filepath.Join(work, filepath.FromSlash(name)) })
	if err != nil {
		return fmt.Errorf("backup %s: %w", file, err)
	}
	database := filepath.Join(work, databaseName)
	if err := etcd.Restore(database, filepath.Join(work, "etcd")); err != nil {
		return err
	}
	if err := os.Remove(database); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	moves := []struct{ from, to string }{{"pki", dir.PKI()}, {"etcd", dir.Etcd()}}
	for _, f := range files {
		switch f.Name {
		case providersName:
			moves = append(moves, struct{ from, to string }{providersName, dir.Providers()})
		case portName:
			moves = append(moves, struct{ from, to string }{portName, dir.Port()})
		}
	}
	for _, move := range moves {
		if err := os.Rename(filepath.Join(work, move.from), move.to); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	// Until this is gone, no server starts here.
	if err := os.Remove(work); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
