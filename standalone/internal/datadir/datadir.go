// SPDX-License-Identifier: Apache-2.0

// Package datadir owns the folder that holds everything a standalone server keeps,
// and makes sure that only one server uses it at a time.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is a data directory that this process holds alone until Close.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the directory with mode 0700 where it is missing and takes its lock. The
// kernel gives the lock back when the process ends, however it ends.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("no data directory: give --data-dir DIR or set EGRESS_DATA_DIR")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := takeLock(path, lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Dir{path: path, lock: lock}, nil
}

func takeLock(path string, lock *os.File) error {
	err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("data directory %s is in use by another egress-standalone%s: stop that one, or choose another --data-dir",
			path, holder(lock))
	}
	if err != nil {
		return fmt.Errorf("lock data directory %s: %w", path, err)
	}
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("lock data directory %s: %w", path, err)
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return fmt.Errorf("lock data directory %s: %w", path, err)
	}
	return nil
}

// holder names the process that has the lock, as far as it has said so.
func holder(lock *os.File) string {
	content, err := io.ReadAll(io.LimitReader(lock, 32))
	pid := strings.TrimSpace(string(content))
	if err != nil || pid == "" {
		return ""
	}
	return " (process " + pid + ")"
}

// Close gives the directory free for another server.
func (d *Dir) Close() error { return d.lock.Close() }

// Path is the absolute path of the directory.
func (d *Dir) Path() string { return d.path }

// Etcd is the folder of the database.
func (d *Dir) Etcd() string { return filepath.Join(d.path, "etcd") }

// Sockets is the folder of the Unix sockets.
func (d *Dir) Sockets() string { return filepath.Join(d.path, "run") }

// PKI is the folder of keys and certificates.
func (d *Dir) PKI() string { return filepath.Join(d.path, "pki") }

// Kubeconfig is the file that clients use.
func (d *Dir) Kubeconfig() string { return KubeconfigIn(d.path) }

// KubeconfigIn is the kubeconfig's path in a data directory that this process does not hold.
func KubeconfigIn(path string) string { return filepath.Join(path, "kubeconfig") }

// KubectlCacheIn is where the embedded kubectl keeps what it learned of this server; shared
// caches go by address, and another server may have had the same port.
func KubectlCacheIn(path string) string { return filepath.Join(path, "kubectl-cache") }
