// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Paths are the files of a data directory, which this process may or may not hold.
type Paths struct{ root string }

// Resolve finds the directory that a user has named.
func Resolve(path string) (Paths, error) {
	if path == "" {
		return Paths{}, errors.New("no data directory: give --data-dir DIR, or set EGRESS_DATA_DIR or HOME")
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return Paths{}, fmt.Errorf("data directory: %w", err)
	}
	return Paths{root: root}, nil
}

// Root is the absolute path of the directory.
func (p Paths) Root() string { return p.root }

// Etcd is the folder of the database.
func (p Paths) Etcd() string { return filepath.Join(p.root, "etcd") }

// Sockets is the folder of the Unix sockets.
func (p Paths) Sockets() string { return filepath.Join(p.root, "run") }

// PKI is the folder of keys and certificates.
func (p Paths) PKI() string { return filepath.Join(p.root, "pki") }

// Kubeconfig is the file that clients use.
func (p Paths) Kubeconfig() string { return filepath.Join(p.root, "kubeconfig") }

// KubectlCache is where the carried kubectl keeps what it learned of this server; shared
// caches go by address, and another server may have had the same port.
func (p Paths) KubectlCache() string { return filepath.Join(p.root, "kubectl-cache") }

// Providers is the providers file of a server that is given no other.
func (p Paths) Providers() string { return filepath.Join(p.root, "providers.yaml") }

// Port holds the port that the API last had.
func (p Paths) Port() string { return filepath.Join(p.root, "port") }

// Log is what a server in the background prints.
func (p Paths) Log() string { return filepath.Join(p.root, "serve.log") }

// Restoring holds what a restore has not put in place yet.
func (p Paths) Restoring() string { return filepath.Join(p.root, "restoring") }

// CommandLock keeps two commands from starting or stopping the server at the same time.
func (p Paths) CommandLock() string { return filepath.Join(p.root, "command.lock") }

// Version names the format of the data, and the program that wrote it.
func (p Paths) Version() string { return filepath.Join(p.root, "version") }

// IsLock says whether a path is one of the directory's locks, which stay where they are: a lock that is removed while somebody
// waits for it is no lock any more.
func (p Paths) IsLock(path string) bool { return path == p.lock() || path == p.CommandLock() }

func (p Paths) lock() string { return filepath.Join(p.root, "lock") }

// Exists says whether a server has ever kept data here.
func (p Paths) Exists() (bool, error) {
	_, err := os.Stat(p.Etcd())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, p.explain(err)
	}
	return true, nil
}
