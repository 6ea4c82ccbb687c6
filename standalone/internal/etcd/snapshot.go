// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const dialTimeout = 10 * time.Second

// Listens says whether a database has its socket in socketDir.
func Listens(socketDir string) bool {
	_, err := os.Stat(filepath.Join(socketDir, socketName))
	return err == nil
}

// Snapshot copies the running database that has its socket in socketDir, as it is at one moment, into a new file of mode
// 0600. It checks the copy, and returns how many keys it has.
func Snapshot(ctx context.Context, socketDir, file string) (keys int, err error) {
	sockets, err := os.Open(socketDir)
	if err != nil {
		return 0, fmt.Errorf("copy the database: %w", err)
	}
	defer func() { err = errors.Join(err, sockets.Close()) }()
	client := clientv3.Config{Endpoints: []string{"unix://" + socketIn(sockets)}, DialTimeout: dialTimeout}
	if _, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), client, file); err != nil {
		return 0, fmt.Errorf("copy the database: %w", err)
	}
	status, err := etcdutl.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return 0, fmt.Errorf("check the copy of the database: %w", err)
	}
	return status.TotalKey, nil
}

// Restore makes the database in dataDir, which must be missing or empty, from a snapshot. The snapshot's own hash is checked.
func Restore(file, dataDir string) error {
	config := configuration(dataDir, "")
	err := etcdutl.NewV3(zap.NewNop()).Restore(etcdutl.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dataDir, Name: config.Name,
		PeerURLs:       []string{config.AdvertisePeerUrls[0].String()},
		InitialCluster: config.InitialCluster, InitialClusterToken: config.InitialClusterToken,
	})
	if err != nil {
		return fmt.Errorf("restore the database: %w", err)
	}
	return nil
}
