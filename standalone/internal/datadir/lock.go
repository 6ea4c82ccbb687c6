// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const lockPoll = 50 * time.Millisecond

// The lock belongs to the open file, so that one process cannot take it twice, and one can ask for it without taking it.
func lockRange() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }

// InUseError is of a data directory that another process holds.
type InUseError struct {
	Path string
	// Pid of the process, or 0 where it has not said so yet.
	Pid int
}

func (e *InUseError) Error() string {
	process := ""
	if e.Pid != 0 {
		process = fmt.Sprintf(" (process %d)", e.Pid)
	}
	return fmt.Sprintf("data directory %s is in use by another egress-standalone%s: stop that one, or choose another --data-dir", e.Path, process)
}

func takeLock(p Paths, lock *os.File) error {
	err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, lockRange())
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return &InUseError{Path: p.root, Pid: writtenPid(lock)}
	}
	if err != nil {
		return fmt.Errorf("lock data directory %s: %w", p.root, err)
	}
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("lock data directory %s: %w", p.root, err)
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return fmt.Errorf("lock data directory %s: %w", p.root, err)
	}
	return nil
}

// Holder is the process that holds the directory: held is false where there is none, and pid 0 where it has not said so yet.
func (p Paths) Holder() (pid int, held bool, err error) {
	lock, err := os.Open(p.lock())
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, p.explain(err)
	}
	defer func() { _ = lock.Close() }()
	asked := lockRange()
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_GETLK, asked); err != nil {
		return 0, false, fmt.Errorf("ask who holds data directory %s: %w", p.root, err)
	}
	if asked.Type == unix.F_UNLCK {
		return 0, false, nil
	}
	return writtenPid(lock), true, nil
}

// writtenPid is what the holder of the lock has written into it.
func writtenPid(lock *os.File) int {
	content, err := io.ReadAll(io.LimitReader(io.NewSectionReader(lock, 0, 32), 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return pid
}

// LockCommand waits until no other command starts or stops the server of this directory, which it makes where it is missing.
func (p Paths) LockCommand(ctx context.Context, waiting func()) (release func() error, err error) {
	if err := os.MkdirAll(p.root, 0o700); err != nil {
		return nil, p.explain(err)
	}
	file, err := os.OpenFile(p.CommandLock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, p.explain(err)
	}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, lockRange())
		if err == nil {
			return file.Close, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", p.root, err), file.Close())
		}
		waiting()
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another command works on data directory %s: %w", p.root, context.Cause(ctx)), file.Close())
		case <-time.After(lockPoll):
		}
	}
}
