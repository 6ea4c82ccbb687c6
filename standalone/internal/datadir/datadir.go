// SPDX-License-Identifier: Apache-2.0

// Package datadir owns the folder that holds everything a standalone server keeps,
// and makes sure that only one server uses it at a time.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir is a data directory that this process holds alone until Close.
type Dir struct {
	Paths
	lock *os.File
}

// Default is the data directory of this user: $EGRESS_DATA_DIR, or egress-proxies in
// $XDG_DATA_HOME, which is ~/.local/share where it is not set. It is empty where there is no home either.
func Default() string {
	if dir := os.Getenv("EGRESS_DATA_DIR"); dir != "" {
		return dir
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "egress-proxies")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "egress-proxies")
}

// Open makes the directory with mode 0700 where it is missing, takes its lock, and sees that its format is one that this
// program knows. The kernel gives the lock back when the process ends, however it ends.
func Open(path, program string) (*Dir, error) {
	return open(path, func(p Paths) error { return p.checkFormat(program) })
}

// OpenEmpty takes a directory without data in it, or makes it.
func OpenEmpty(path string) (*Dir, error) {
	return open(path, Paths.checkEmpty)
}

func open(path string, check func(Paths) error) (*Dir, error) {
	paths, err := Resolve(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(paths.root, 0o700); err != nil {
		return nil, paths.explain(err)
	}
	lock, err := os.OpenFile(paths.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, paths.explain(err)
	}
	for _, step := range []func() error{
		func() error { return takeLock(paths, lock) },
		paths.checkAccess,
		func() error { return check(paths) },
	} {
		if err = step(); err != nil {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Dir{Paths: paths, lock: lock}, nil
}

// Close gives the directory free for another server.
func (d *Dir) Close() error { return d.lock.Close() }

// checkAccess finds what another user's server has left.
func (p Paths) checkAccess() error {
	for _, name := range []string{p.root, p.Etcd(), p.PKI(), p.Sockets()} {
		err := unix.Access(name, unix.R_OK|unix.W_OK|unix.X_OK)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p.explain(&fs.PathError{Op: "access", Path: name, Err: err})
		}
	}
	return nil
}

// explain says what to do where the directory cannot be written.
func (p Paths) explain(err error) error {
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("data directory %s: %w", p.root, err)
	}
	return fmt.Errorf("data directory %s cannot be written by %s: %w; give it to that user, or choose another --data-dir", p.root, currentUser(), err)
}

func currentUser() string {
	id := "user " + strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		id += " (" + u.Username + ")"
	}
	return id
}
