// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// dialLocal opens libvirt's socket on this very machine.
func dialLocal(ctx context.Context, t Target) (*Link, error) {
	conn, err := t.dialer.DialContext(ctx, "unix", t.Socket)
	if err != nil {
		return nil, failed(ctx, t, "opening "+t.Socket, explainLocal(t, err))
	}
	return bounded(ctx, t, conn, func() (*Link, error) {
		l := newLink(t, conn, func() { _ = conn.Close() })
		if err := l.open(ctx); err != nil {
			l.Close()
			return nil, openFailed(ctx, t, way{}, err)
		}
		return l, nil
	})
}

// explainLocal is what a host answers, for this machine.
func explainLocal(t Target, err error) error {
	a := hostAnswer{}
	for _, socket := range []string{modularSocket, DefaultSocket} {
		if isSocket(socket) {
			a.sockets = append(a.sockets, socket)
		}
	}
	info, statErr := os.Stat(t.Socket)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		a.state = "missing"
	case errors.Is(err, syscall.EACCES):
		a.state, a.group = "denied", groupOf(info)
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		a.state = "nosocket"
	case errors.Is(err, syscall.ECONNREFUSED):
		a.state = "idle"
	default:
		return err
	}
	return a.explain(t, err)
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0
}

func groupOf(info fs.FileInfo) string {
	if info == nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(stat.Gid), 10)
	if group, err := user.LookupGroupId(id); err == nil {
		return group.Name
	}
	return id
}

// ownUser is the name of the user that this process runs as, or the number of one without a name.
func ownUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}
