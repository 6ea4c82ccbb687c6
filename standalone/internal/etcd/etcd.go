// SPDX-License-Identifier: Apache-2.0

// Package etcd runs the database inside this process. It listens on one Unix socket in a
// folder that only its owner may enter, so it needs no certificates and no ports.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

const (
	socketName = "etcd.sock"
	// etcd preallocates two segments; the default of 64 MB each is for larger clusters.
	walSegmentBytes = 8 << 20
	// Space that compaction freed goes back to the file system at the next start once there is this much of it.
	defragThresholdMegabytes = 64
)

// Server is a running database.
type Server struct {
	etcd    *embed.Etcd
	sockets *os.File
}

// Start opens the database in dataDir, or makes it, and returns once it answers. The caller
// holds the lock on both folders, so a socket found in socketDir is a dead process's.
func Start(ctx context.Context, dataDir, socketDir string) (*Server, error) {
	sockets, err := prepare(dataDir, socketDir)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s := &Server{sockets: sockets}
	if s.etcd, err = embed.StartEtcd(configuration(dataDir, socketIn(sockets))); err != nil {
		return nil, errors.Join(fmt.Errorf("etcd in %s: %w", dataDir, err), sockets.Close())
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, nil
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		err = errors.New("it stopped while starting")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.Close()
	return nil, fmt.Errorf("etcd in %s did not start: %w", dataDir, err)
}

func prepare(dataDir, socketDir string) (*os.File, error) {
	for _, dir := range []string{dataDir, socketDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(filepath.Join(socketDir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.Open(socketDir)
}

func configuration(dataDir, socket string) *embed.Config {
	wal.SegmentSizeBytes = walSegmentBytes
	cfg := embed.NewConfig()
	cfg.Name = "standalone"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.Dir = dataDir
	client := url.URL{Scheme: "unix", Path: socket}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	// The only member has no peers to listen for; the advertised peer URL is a name, never dialled.
	cfg.ListenPeerUrls = nil
	cfg.BootstrapDefragThresholdMegabytes = defragThresholdMegabytes
	// It logs every listener that it closes itself as an error; what fails is returned.
	cfg.LogLevel = "panic"
	return cfg
}

// socketIn reaches the socket by its folder's descriptor: the path of a Unix socket is
// limited to 107 bytes, and data directories may be longer.
func socketIn(dir *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
}

// Endpoint is the address for clients in this process.
func (s *Server) Endpoint() string { return "unix://" + socketIn(s.sockets) }

// Wait returns nil when the context ends, and an error when the database ends before.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("etcd failed: %w", err)
	case <-s.etcd.Server.StopNotify():
		return errors.New("etcd stopped by itself")
	}
}

// Close ends the database and removes its socket.
func (s *Server) Close() {
	s.etcd.Close()
	// Nothing was written through this descriptor: there is no error to act on.
	_ = s.sockets.Close()
}
