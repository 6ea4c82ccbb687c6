// SPDX-License-Identifier: Apache-2.0

// Package backup writes everything that a standalone server keeps into one file, and makes a data directory of such a file.
//
// The file is a compressed tar archive: first manifest.json, which names each further file with its SHA-256, then these files.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/etcd"
)

const (
	// startTimeout is how long a server that starts right now may take until its database can be copied.
	startTimeout = time.Minute
	startPoll    = 50 * time.Millisecond
)

// Names in the archive; those in the folder pki keep their own.
const (
	databaseName  = "etcd.snapshot"
	providersName = "providers.yaml"
	portName      = "port"
	pkiPrefix     = "pki/"
)

// Source is what is copied.
type Source struct {
	Paths datadir.Paths
	// Providers is the providers file; empty for the one in the data directory.
	Providers string
	// Program that writes the backup, with its version.
	Program string
}

// Summary is what a backup holds.
type Summary struct {
	// Keys of the database, each an object of the API.
	Keys int
	// Size of the file in bytes.
	Size int64
}

// Write copies the data into a new file of mode 0600 and reads it back to check it. It works while the server runs and while
// it does not. A file that exists is left alone, and after an error there is none.
func Write(ctx context.Context, from Source, file string) (Summary, error) {
	paths := from.Paths
	if from.Providers == "" {
		from.Providers = paths.Providers()
	}
	if exists, err := paths.Exists(); err != nil || !exists {
		return Summary{}, errors.Join(err, fmt.Errorf("data directory %s holds no data to back up", paths.Root()))
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return Summary{}, fmt.Errorf("%s exists: name a new file", file)
	}
	work, err := os.MkdirTemp(filepath.Dir(file), ".egress-backup-")
	if err != nil {
		return Summary{}, fmt.Errorf("backup: %w", err)
	}
	summary, err := write(ctx, from, work, file)
	return summary, errors.Join(err, os.RemoveAll(work))
}

func write(ctx context.Context, from Source, work, file string) (Summary, error) {
	paths, database := from.Paths, filepath.Join(work, databaseName)
	keys, err := copyDatabase(ctx, paths, from.Program, database)
	if err != nil {
		return Summary{}, err
	}
	contents := []content{{databaseName, database}}
	pki, err := os.ReadDir(paths.PKI())
	if err != nil {
		return Summary{}, fmt.Errorf("backup: %w", err)
	}
	for _, entry := range pki {
		contents = append(contents, content{path.Join(pkiPrefix, entry.Name()), filepath.Join(paths.PKI(), entry.Name())})
	}
	for _, c := range []content{{providersName, from.Providers}, {portName, paths.Port()}} {
		switch _, err := os.Stat(c.path); {
		case err == nil:
			contents = append(contents, c)
		case !errors.Is(err, fs.ErrNotExist):
			return Summary{}, fmt.Errorf("backup: %w", err)
		}
	}
	archive := filepath.Join(work, "archive")
	if err := pack(archive, from.Program, contents); err != nil {
		return Summary{}, fmt.Errorf("backup: %w", err)
	}
	if _, err := unpack(archive, from.Program, nil); err != nil {
		return Summary{}, fmt.Errorf("check the backup that was written: %w", err)
	}
	info, err := os.Stat(archive)
	if err != nil {
		return Summary{}, fmt.Errorf("backup: %w", err)
	}
	if err := os.Rename(archive, file); err != nil {
		return Summary{}, fmt.Errorf("backup: %w", err)
	}
	return Summary{Keys: keys, Size: info.Size()}, nil
}

// copyDatabase asks the database of the server that runs, or runs it itself for that long.
func copyDatabase(ctx context.Context, paths datadir.Paths, program, to string) (keys int, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %s", startTimeout))
	defer cancel()
	for {
		_, held, failed := paths.Holder()
		switch {
		case failed != nil:
			return 0, failed
		case !held:
			keys, err = copyStopped(ctx, paths, program, to)
		case etcd.Listens(paths.Sockets()):
			keys, err = etcd.Snapshot(ctx, paths.Sockets(), to)
		default:
			err = errors.New("the server has not opened its database yet")
		}
		// A server that starts or stops right now is asked again.
		if err == nil || !held && !errors.As(err, new(*datadir.InUseError)) {
			return keys, err
		}
		select {
		case <-waiting.Done():
			return 0, fmt.Errorf("%w (%w)", err, context.Cause(waiting))
		case <-time.After(startPoll):
		}
	}
}

func copyStopped(ctx context.Context, paths datadir.Paths, program, to string) (keys int, err error) {
	release, err := paths.LockCommand(ctx, func() {})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	dir, err := datadir.Open(paths.Root(), program)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	store, err := etcd.Start(ctx, dir.Etcd(), dir.Sockets())
	if err != nil {
		return 0, err
	}
	defer store.Close()
	return etcd.Snapshot(ctx, dir.Sockets(), to)
}
