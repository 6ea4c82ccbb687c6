// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// answerTime bounds the question whether somebody serves a socket already.
const answerTime = 2 * time.Second

// Listen opens a unix socket that only this user can connect to. A socket that nobody serves any more is replaced; one that somebody
// serves, and a file of another kind, stay. Its Close removes the socket.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	folder, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w; make the folder %s, or name another socket", err, filepath.Dir(path))
	}
	defer func() { _ = folder.Close() }() // ends the lock
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// Nobody but this user may connect at any moment: the socket gets its name only when it has its mode.
	private, err := os.MkdirTemp(filepath.Dir(path), ".sim-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	early := filepath.Join(private, "s")
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", early)
	if err != nil {
		return nil, err
	}
	if unixListener, ok := listener.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // it knows its early name only
	}
	if err = os.Chmod(early, 0o600); err == nil {
		err = os.Rename(early, path)
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	made, err := os.Lstat(path)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return &socket{Listener: listener, path: path, made: made}, nil
}

// lockFolder keeps two simulators that start at once from each replacing the other's socket.
func lockFolder(path string) (*os.File, error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("lock folder %s: %w", path, err)
	}
	return folder, nil
}

// removeStale removes a socket that nobody serves.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; name another path, or remove it", path)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("another simulator serves %s; use that one, end it, or name another socket", path)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("whether somebody serves %s cannot be found out: %w; end who does, or name another socket", path, err)
}

// socket removes its path when it is closed, if that is still its own.
type socket struct {
	net.Listener
	path string
	made fs.FileInfo
}

// Close closes the socket and removes its path.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path)
	}
	return s.Listener.Close()
}
